"""Turns of clients: who asks little comes first, a crowd has its share, and nobody waits for ever; by told moments."""

import asyncio

import pytest
from zonetrack.service.turns import CROWD, REST_MAX_S, WORK_S, Account, Order, Turns

COST_S = 0.001


@pytest.fixture
def loop():
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


class World:
    """Clients that ask anew as soon as they are answered, and a clock that goes on while somebody is answered."""

    def __init__(self, loop, percent=100):
        self.order, self.loop = Order(percent), loop
        self.now_s = self.busy_s = 0.0
        self.accounts, self.answered = {}, []

    def ask(self, name, waiting):
        account = self.accounts.setdefault(name, Account())
        return self.order.enter(account, waiting, self.loop.create_future(), self.now_s)

    def next(self):
        """Return the name of who is answered now, None when nobody is."""
        turn = self.order.next(self.now_s, self.busy_s)
        if turn is None:
            return None
        self.now_s, self.busy_s = self.now_s + COST_S, self.busy_s + COST_S
        self.order.leave(turn)
        name = next(name for name, account in self.accounts.items() if account is turn.account)
        self.answered.append(name)
        return name


def test_who_asks_once_is_next_whatever_others_have_asked(loop):
    world = World(loop)
    for name in range(64):
        world.ask(name, 32)
    for _ in range(200):
        world.ask(world.next(), 32)
    world.ask("quiet", 1)
    assert "quiet" in (world.next(), world.next())


def test_those_who_ask_alike_are_answered_alike(loop):
    world = World(loop)
    for name in range(10):
        world.ask(name, 32)
    for _ in range(1000):
        world.ask(world.next(), 32)
    assert {world.answered.count(name) for name in range(10)} == {100}


def test_who_asks_more_at_once_has_no_more_for_it_and_is_not_forgotten(loop):
    world = World(loop)
    world.ask("one", 1)
    world.ask("many", 4)
    for _ in range(1000):
        name = world.next()
        world.ask(name, 1 if name == "one" else 4)
    assert world.answered.count("many") == pytest.approx(200, abs=2)


def test_silence_is_no_credit(loop):
    world = World(loop)
    world.ask("late", 2)
    world.next()
    world.ask("early", 2)
    for _ in range(100):
        world.ask(world.next(), 2)
    world.answered.clear()
    world.ask("late", 2)
    for _ in range(20):
        world.ask(world.next(), 2)
    assert world.answered.count("late") == pytest.approx(10, abs=1)


def test_a_crowd_has_its_share_and_who_asks_once_does_not_wait_for_it(loop):
    world = World(loop, percent=20)
    for name in range(64):
        world.ask(name, 32)
    quiet = 0
    while world.now_s < 10:
        name = world.next()
        if name is not None:
            world.ask(name, 32)
            continue
        world.ask("quiet", 1)
        assert world.next() == "quiet"
        quiet += 1
        rest_s = world.order.rest_s(world.now_s)
        assert 0 < rest_s <= REST_MAX_S
        world.now_s += rest_s
    crowd = len(world.answered) - quiet
    assert crowd * COST_S == pytest.approx(0.2 * world.now_s, rel=0.1)
    assert world.order.rests == pytest.approx(quiet, abs=1) and world.order.rests > 100


@pytest.mark.parametrize(("percent", "clients"), [(100, 64), (20, CROWD - 1)])
def test_few_clients_or_a_whole_core_know_no_rest(percent, clients, loop):
    world = World(loop, percent)
    for name in range(clients):
        world.ask(name, 32)
    for _ in range(1000):
        world.ask(world.next(), 32)
    assert (world.order.rests, world.order.rest_s(world.now_s)) == (0, 0)


def test_a_rest_is_over_when_the_crowd_is(loop):
    world = World(loop, percent=1)
    turns = {name: world.ask(name, 2) for name in range(2 * CROWD)}
    while world.next() is not None:
        assert world.busy_s < WORK_S + 2 * COST_S
    assert world.order.rest_s(world.now_s) > 0
    waiting = [name for name in turns if name not in world.answered]
    for name in waiting[3:]:
        turns[name].grant.cancel()
        world.order.leave(turns[name])
    assert [world.next() for _ in range(4)] == [*waiting[:3], None]


def test_who_gives_up_holds_up_nobody():
    async def play():
        turns = Turns(25)
        held = await turns.take(Account(), 2)
        gone = [asyncio.create_task(turns.take(Account(), 2)) for _ in range(3 * CROWD)]
        await asyncio.sleep(0)
        for task in gone:
            task.cancel()
        assert all(
            isinstance(end, asyncio.CancelledError) for end in await asyncio.gather(*gone, return_exceptions=True)
        )
        turns.leave(held)
        for _ in range(3):
            turns.leave(await turns.take(Account(), 2))
        return turns.order

    order = asyncio.run(asyncio.wait_for(play(), 30))
    assert order.next(0.0, 0.0) is None


def test_everybody_has_a_turn_though_control_rests():
    async def ask(turns, account):
        for waiting in range(20, 0, -1):
            turns.leave(await turns.take(account, waiting))

    async def play():
        turns = Turns(1)
        await asyncio.gather(*(ask(turns, Account()) for _ in range(2 * CROWD)))

    asyncio.run(asyncio.wait_for(play(), 60))
