from zonetrack.kernels import outcome
from zonetrack.kernels.outcome import Outcome
from zonetrack.kernels.timeouts import Timeout
from zonetrack.kernels.words import u64
from zonetrack.shm.reasons import Reason

CLOSE, UNACKNOWLEDGED = u64(Timeout.TCP_CLOSE), u64(Timeout.TCP_UNACKNOWLEDGED)


def word(value):
    """Return a word as kernels see it, whatever Python made of it."""
    return u64(int(value))


def test_what_passes_carries_its_term():
    term = word(outcome.term(CLOSE, UNACKNOWLEDGED))
    passed = word(outcome.passed(term))
    assert outcome.kind_of(passed) == Outcome.PASS
    assert outcome.term_of(passed) == term
    assert outcome.timeout_of(term) == CLOSE and outcome.cap_of(term) == UNACKNOWLEDGED
    assert outcome.reason_of(passed) == Reason.NONE
    assert outcome.is_counted(passed)
    assert passed & outcome.SHORTEN == 0


def test_what_is_let_by_leaves_expiry_and_counts_alone():
    let_by = word(outcome.let_by(u64(Reason.TCP_SEQ_BELOW)))
    assert outcome.kind_of(let_by) == Outcome.PASS
    assert outcome.term_of(let_by) == outcome.NO_TERM
    assert outcome.reason_of(let_by) == Reason.TCP_SEQ_BELOW
    assert not outcome.is_counted(let_by)


def test_what_is_invalid_leaves_expiry_and_counts_alone():
    invalid = word(outcome.invalid(u64(Reason.TCP_RST_SEQ)))
    assert outcome.kind_of(invalid) == Outcome.INVALID
    assert outcome.term_of(invalid) == outcome.NO_TERM
    assert outcome.reason_of(invalid) == Reason.TCP_RST_SEQ
    assert not outcome.is_counted(invalid)


def test_shortened_keeps_all_but_the_term():
    invalid = word(outcome.invalid(u64(Reason.TCP_SEQ_ABOVE)))
    shortened = word(outcome.shortened(invalid, word(outcome.term(CLOSE, CLOSE))))
    assert shortened & outcome.SHORTEN
    assert outcome.timeout_of(word(outcome.term_of(shortened))) == CLOSE
    assert outcome.kind_of(shortened) == Outcome.INVALID
    assert outcome.reason_of(shortened) == Reason.TCP_SEQ_ABOVE


def test_any_term_can_be_taken_back():
    passed = word(outcome.passed(word(outcome.term(CLOSE, UNACKNOWLEDGED)))) | outcome.KEEP_EXPIRY
    assert outcome.term_of(passed) == outcome.NO_TERM
    assert outcome.is_counted(passed)
