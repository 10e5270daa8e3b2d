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
)
