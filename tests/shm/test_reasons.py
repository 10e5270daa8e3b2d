"""One closed list of reasons: each has a number that fits wherever it is kept, and a word that users can rely on."""

import pytest
from zonetrack.shm.layout import COUNTERS_MAX, VERDICT
from zonetrack.shm.reasons import Reason, word


def test_a_number_is_an_index_of_counters_and_fits_into_a_verdict():
    fits = 1 << 8 * VERDICT["reason"].itemsize
    assert max(Reason) < min(COUNTERS_MAX, fits)


def test_no_reason_is_no_word():
    assert word(Reason.NONE) is None


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason])
def test_a_word_is_the_name_in_lower_case_whatever_holds_the_number(reason):
    assert word(int(reason)) == word(reason) == reason.name.lower()


def test_words_that_open_vswitch_counts_under_are_its_words():
    theirs = {"full", "zone_full", "insert", "remove", "maybe_not_found", "invalid_tcp_flags", "tcp_seq_chk_bypass"}
    theirs |= {"l3csum_err", "l4csum_err", "l3csum_checked", "l4csum_checked"}
    assert {word(reason) for reason in Reason} >= theirs


def test_a_number_that_is_no_reason_is_refused():
    with pytest.raises(ValueError, match="255"):
        word(255)
