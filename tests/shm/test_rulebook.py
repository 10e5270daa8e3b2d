"""Generations are published whole, and none is written while a worker goes by it."""

import numpy as np
import pytest
from zonetrack.shm.layout import GENERATION, HIT
from zonetrack.shm.rulebook import Rulebook, StillInUseError, counters, total


def generation(mark, workers=1, rules=2):
    """Return a generation that can be told from others."""
    head = np.zeros(1, GENERATION)
    head["hits"], head["rule_count"], head["workers"] = GENERATION.itemsize, rules, workers
    head["bytes"] = GENERATION.itemsize + workers * rules * HIT.itemsize + 8
    hits = np.zeros(workers * rules * HIT.itemsize, "u1")
    return np.concatenate([head.view("u1"), hits, np.full(8, mark, "u1")])


def mark(book):
    """Return what tells the generation that holds from others."""
    return int(book.current[-1])


def acknowledge(book, worker, word):
    """Let a worker say what it goes by."""
    book._acknowledged[worker] = word


def test_an_empty_book_has_no_rules():
    book = Rulebook(2)
    assert (book.published, book.number, book.current, len(book.hits())) == (0, 0, None, 0)
    assert book.picked_up(0)


def test_what_is_published_holds():
    book = Rulebook(1)
    assert [book.publish(generation(one)) for one in (7, 8, 9)] == [1, 2, 3]
    assert (book.number, mark(book)) == (3, 9)
    assert book.current[: GENERATION.itemsize].view(GENERATION)["number"] == 3


def test_a_slot_that_a_worker_goes_by_is_not_written():
    book = Rulebook(2)
    book.publish(generation(7))
    acknowledge(book, 1, book.published)
    held = book.current
    book.publish(generation(8))
    with pytest.raises(StillInUseError, match="worker 1 still goes by older rules"):
        book.publish(generation(9), wait_s=0)
    assert (mark(book), int(held[-1])) == (8, 7)
    assert not book.picked_up(0)
    acknowledge(book, 1, book.published)
    assert book.picked_up(0)
    assert book.publish(generation(9), wait_s=0) == 3
    assert mark(book) == 9


def test_who_ends_lets_go():
    book = Rulebook(1)
    book.publish(generation(7))
    acknowledge(book, 0, book.published)
    book.publish(generation(8))
    book.let_go(0)
    book.publish(generation(9), wait_s=0)
    assert mark(book) == 9


@pytest.mark.parametrize("before", [1, 2])
def test_withdrawn_rules_are_kept_for_who_still_goes_by_them(before):
    book = Rulebook(1)
    for one in range(before):
        book.publish(generation(one))
    acknowledge(book, 0, book.published)
    held = book.current
    book.withdraw()
    assert book.current is None and not book.picked_up(0)
    book.publish(generation(50), wait_s=0)
    assert (mark(book), int(held[-1])) == (50, before - 1)
    assert book.number == before + 1


def test_counters_are_added_up():
    book = Rulebook(2)
    book.publish(generation(7, workers=2))
    counters(book.current)[0, 1] = (1, 60)
    counters(book.current)[1, 1] = (2, 90)
    assert book.hits().tolist() == total(book.current).tolist() == [(0, 0), (3, 150)]


def test_words_of_workers_share_no_line():
    book = Rulebook(3)
    places = [book.acknowledged_address(worker) for worker in range(3)]
    assert [place - book.published_address for place in places] == [64, 128, 192]
    book._acknowledged[:] = 5
    assert book.published == 0
