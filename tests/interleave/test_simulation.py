"""The simulated memory is as weak as it says and no weaker: litmus tests, each outcome seen or never seen."""

import addresses
import pytest
import tiny
from simulation import ACQUIRE, RELEASE, Broken, Deadlock, Mapped, Simulation
from zonetrack.kernels import locks, memory
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import Region

SEEDS = 1500


@pytest.fixture(scope="module")
def stage():
    made = tiny.Stage(participants=1)
    made.save()
    made.mapped = Mapped(made.table)
    return made


@pytest.fixture
def words(stage):
    """Addresses of four words of 8 bytes that are 0."""
    base = stage.table.address(Region.INDEX, "slots")
    return [u64(base + 64 * i) for i in range(4)]


def seen(stage, *bodies, **how):
    """Return every combination of answers that some seed leads to."""
    outcomes = set()
    for seed in range(SEEDS):
        stage.restore()
        answers = [[] for _ in bodies]
        run = Simulation(stage.mapped, seed, **how)
        run.run(*(lambda b=b, a=a: a.extend(b()) for b, a in zip(bodies, answers, strict=True)))
        outcomes.add(tuple(int(value) for answer in answers for value in answer))
    return outcomes


def writer(x, y, publish):
    def body():
        memory.write64(x, u64(1))
        publish(y, u64(1))
        return ()

    return body


def reader(y, x, look, fence=lambda: None):
    def body():
        first = look(y)
        fence()
        return first, memory.read64(x)

    return body


def test_message_passing_needs_both_sides(stage, words):
    x, y, *_ = words
    good = seen(stage, writer(x, y, memory.release64), reader(y, x, memory.acquire64))
    assert good == {(0, 0), (0, 1), (1, 1)}
    assert (1, 0) in seen(stage, writer(x, y, memory.write64), reader(y, x, memory.acquire64))
    assert (1, 0) in seen(stage, writer(x, y, memory.release64), reader(y, x, memory.read64))


def test_acquire_fence_orders_plain_loads(stage, words):
    x, y, *_ = words
    outcomes = seen(stage, writer(x, y, memory.release64), reader(y, x, memory.read64, memory.fence_acquire))
    assert outcomes == {(0, 0), (0, 1), (1, 1)}


def test_acquire_load_does_not_wait_for_earlier_plain_load(stage, words):
    """Why a miss is not confirmed by making only the second look at the zone word acquire."""
    x, y, *_ = words

    def clear_after_publish():
        memory.release64(x, u64(1))
        memory.release64(y, u64(1))
        return ()

    def look(first):
        return lambda: (first(y), memory.acquire64(x))

    assert (1, 0) in seen(stage, clear_after_publish, look(memory.read64))
    assert (1, 0) not in seen(stage, clear_after_publish, look(memory.acquire64))


def test_store_buffer_needs_full_fence(stage, words):
    x, y, *_ = words

    def side(mine, other, fence):
        def body():
            memory.release64(mine, u64(1))
            fence()
            return (memory.acquire64(other),)

        return body

    assert (0, 0) in seen(stage, side(x, y, lambda: None), side(y, x, lambda: None))
    assert (0, 0) not in seen(stage, side(x, y, memory.fence_full), side(y, x, memory.fence_full))


def test_later_plain_store_passes_release_store(stage, words):
    """Why every store that an intent announces is a release store too."""
    x, y, *_ = words

    def announce(store):
        def body():
            memory.release64(x, u64(1))
            store(y, u64(1))
            return ()

        return body

    assert (1, 0) in seen(stage, announce(memory.write64), reader(y, x, memory.acquire64))
    assert (1, 0) not in seen(stage, announce(memory.release64), reader(y, x, memory.acquire64))


def test_one_word_never_goes_back(stage, words):
    x, *_ = words

    def count():
        for value in range(1, 4):
            memory.write64(x, u64(value))
        return ()

    def look():
        return memory.read64(x), memory.read64(x), memory.read64(x)

    outcomes = seen(stage, count, look)
    assert all(a <= b <= c for a, b, c in outcomes)
    assert (0, 0, 3) in outcomes


def test_own_store_is_seen_at_once(stage, words):
    x, y, *_ = words

    def body():
        memory.write64(x, u64(1))
        memory.release64(y, u64(2))
        return memory.read64(x), memory.read64(y)

    assert seen(stage, body, lambda: (memory.read64(x),)) == {(1, 2, 0), (1, 2, 1)}


def test_swap_takes_a_lock_once(stage, words):
    lock, x, *_ = words

    def add(me):
        def body():
            assert locks.take(lock, u64(me))
            memory.write64(x, memory.read64(x) + u64(1))
            locks.drop(lock)
            return ()

        return body

    def total():
        assert locks.take(lock, u64(9))
        value = memory.read64(x)
        locks.drop(lock)
        return (value,)

    assert seen(stage, add(1), add(2), total) == {(0,), (1,), (2,)}
    assert memory.read64(x) == 2


def test_forgotten_orders_show(stage, words):
    x, y, *_ = words
    bodies = writer(x, y, memory.release64), reader(y, x, memory.acquire64)
    assert (1, 0) in seen(stage, *bodies, forget=[RELEASE])
    assert (1, 0) in seen(stage, *bodies, forget=[ACQUIRE])
    assert seen(stage, *bodies, forget=[RELEASE, ACQUIRE], weak=False) == {(0, 0), (0, 1), (1, 1)}


def test_same_seed_same_run(stage, words):
    def body():
        for word in words:
            memory.write64(word, memory.acquire64(word) + u64(1))

    traces = []
    for _ in range(2):
        stage.restore()
        run = Simulation(stage.mapped, 42)
        run.run(body, body, body)
        traces.append((list(run.trace), run.accesses))
    assert traces[0] == traces[1]


def test_deadlock_is_told_with_the_last_accesses(stage):
    first, second = (u64(stage.table.address(Region.CONTROL, "quotas") + offset) for offset in (0, 4))

    def both(one, other):
        def body():
            while not locks.take(one, u64(1)):
                pass
            while not locks.take(other, u64(1)):
                pass
            locks.drop(other)
            locks.drop(one)

        return body

    with pytest.raises(Broken) as broken:
        for seed in range(SEEDS):
            stage.restore()
            Simulation(stage.mapped, seed).run(both(first, second), both(second, first))
    assert isinstance(broken.value.__cause__, Deadlock)
    assert "quotas[0].zone_lock" in str(broken.value)


def test_impatient_worker_gives_up(stage, words):
    lock, *_ = words
    stage.restore()
    memory.write64(lock, u64(7))
    said = []
    Simulation(stage.mapped, 1, impatient=True).run(lambda: said.append(locks.take(lock, u64(1))))
    assert said == [False]


def test_words_have_names(stage):
    table = stage.table
    control, entries = Region.CONTROL, table.address(Region.ENTRIES, "entries")
    assert addresses.name(table, entries + 2 * 192 + 40) == "entries[2].life"
    assert addresses.name(table, entries + 8) == "entries[0].key[1]"
    assert addresses.name(table, table.address(Region.INDEX, "slots") + 1024 + 8) == "slots[1][1]"
    assert addresses.name(table, table.address(Region.DUE, "due") + 12) == "due[3]"
    assert addresses.name(table, table.address(control, "participants")) == "participants[0].intent.step"
    assert addresses.name(table, table.address(control, "delete_lists") + 4) == "delete_lists[0][0].incarnation"
    assert addresses.name(table, 64) == "0x40"
