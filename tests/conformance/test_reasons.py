"""Over the whole corpus: every packet that is invalid or not committed has exactly one reason, and each is counted once."""

from collections import Counter

import corpus
import pytest
from zone_counts import counts, rows_of
from zonetrack.service.explanations import ROWS
from zonetrack.service.replay import Options, Replay, survey
from zonetrack.shm.layout import CtState, VerdictFlag
from zonetrack.shm.reasons import Reason

COMMITS = {reason for reason in Reason if Reason.FULL <= reason < Reason.INSERT}
"""Why a connection was not made."""
FATES = ("invalid", "not committed", "let by", "untracked", "none")


def fate(verdict):
    """Return what became of a packet, by its verdict alone."""
    if verdict["ct_state"] & CtState.INV:
        return "invalid"
    if verdict["flags"] & (VerdictFlag.NOIP | VerdictFlag.UNTRACKED):
        return "untracked"
    if not verdict["flags"] & (VerdictFlag.COMMITTED | VerdictFlag.HELD):
        return "not committed"
    return "let by" if verdict["reason"] else "none"


@pytest.mark.parametrize("profile", ["netfilter", "ovs"])
@pytest.mark.parametrize("connections", [None, 64], ids=["room for all", "room for a few"])
def test_every_packet_has_its_reason_and_every_reason_is_counted(profile, connections, record_property):
    found = survey(map(str, corpus.present()))
    replay = Replay(found, Options(zone=7, profile=profile, workers=2, max_connections=connections, verdicts=True))
    replay.run()
    record_property("corpus_cases", len(replay.verdicts))
    given, fates = Counter(), Counter()
    for verdict in replay.verdicts:
        reason, what = Reason(verdict["reason"]), fate(verdict)
        fates[what] += 1
        given[reason] += 1
        assert (reason is Reason.NONE) == (what == "none"), (reason, what)
        if what == "not committed":
            assert reason in COMMITS, reason
        elif what == "invalid":
            assert reason in (*COMMITS, *range(Reason.TRUNCATED, Reason.FULL)), reason
    del given[Reason.NONE]
    assert {Reason.TRUNCATED, Reason.INVALID_TCP_FLAGS, Reason.L4CSUM_ERR} <= set(given) and fates["invalid"] > 1000
    assert bool(fates["not committed"]) == (connections is not None)
    counters = replay.counters
    assert {reason: int(counters[reason]) for reason in Reason if reason.name in ROWS and counters[reason]} == given
    assert (counters[Reason.INVALID], counters[Reason.PACKETS]) == (fates["invalid"], len(replay.verdicts))
    by_zone = Counter()
    for rows in rows_of(replay.table):
        by_zone.update(counts(rows))
    assert by_zone == {(7, reason): count for reason, count in given.items()}
