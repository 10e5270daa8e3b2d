"""Cases that once went wrong, shrunk; each is run again by every test run."""

from .rounds import Case

FOUND = (
    # what a wipe has deleted is made again and met again: a wipe may take a key away twice
    Case(
        world="roomy",
        seed=0,
        rounds=(((("wipe",),), (), (("make", 1), ("make", 3, 2, 0))),),
        kills=(((), (), (), ()),),
    ),
    # a repairer dies while it counts holders anew; another of the dead seems to hold nothing, and is buried with fragments
    Case(
        world="fragmentary",
        seed=94,
        rounds=(
            (
                (("collect",),),
                (("flush",), ("pieces", (0, 1))),
                (("pieces", (1, 2)), ("pieces", (1, 0)), ("pieces", (1, 1))),
            ),
        ),
        kills=(((), (-62,), (-70,), (-12, -82)),),
    ),
    # credit that could not be given back, for its locks were not had, is not spent in another zone
    Case(
        world="two_zones",
        seed=9,
        rounds=(((("flush",),), (("make", 4),), (("make", 2, 3),)),),
        kills=(((27,), (), (), ()),),
    ),
    # a burst drives out what it has made itself, and is killed: that comes after it, and is one more place in its order
    Case(
        world="crowded",
        seed=1,
        rounds=(((("remove", 4), ("crowd", (2, True), (3, True), (4, True))), (), (("remove", 1), ("find", 3))),),
        kills=(((778,), (), (126,), (376, 20, 92)),),
    ),
)
