"""What zonetrack says of the corpus is what others said, within bounds; and docs/conformance.md shows it as it is now."""

import checkout
import conformance
import conformance_page
import corpus
import pytest
from zonetrack.kernels.jit import JIT

pytestmark = pytest.mark.skipif(not JIT, reason="the interpreter would take minutes; kernels are tested both ways")

PACKETS_PERCENT = 99.9
CAPTURES_PERCENT = 97
FEW = {"kernel-helpers": 94}
"""Of runs of so few captures that one of them is many percent."""
CLASS_PERCENT = 99.5
ASSURED_PERCENT = 99.5
ASPECTS_PERCENT = 99.5
EXACT = {"R>", "R<", "U", "rel", "rel|rpl", "new|rel", "est|rel", "est|rel|rpl"}


@pytest.fixture(scope="module")
def results():
    corpus.present()
    return {name: conformance.compare(name) for name in conformance.RUNS}


def test_page_is_current(results):
    assert checkout.page("conformance.md") == conformance_page.page(results), "run `make conformance`"


@pytest.mark.parametrize("run", conformance.RUNS)
def test_packets_are_what_others_say(run, results, record_property):
    result = results[run]
    record_property("corpus_cases", result.captures.count)
    assert result.packets.percent >= PACKETS_PERCENT, conformance.summary(result.differences)
    assert result.captures.percent >= FEW.get(run, CAPTURES_PERCENT), conformance.summary(result.differences)
    assert result.assured.percent >= ASSURED_PERCENT


@pytest.mark.parametrize("run", conformance.RUNS)
def test_what_is_rare_is_right(run, results):
    """Related and untracked packets are few, and would be lost in a percentage."""
    classes = results[run].classes
    assert {label: share for label, share in classes.items() if label in EXACT and share.right != share.count} == {}
    assert {label: share for label, share in classes.items() if share.percent < CLASS_PERCENT} == {}


@pytest.mark.parametrize("run", conformance.RUNS)
def test_connections_are_what_others_say(run, results):
    result = results[run]
    for aspect, share in result.aspects.items():
        assert share.percent >= ASPECTS_PERCENT, (aspect, share, result.table_differences)


@pytest.mark.parametrize("run", conformance.RUNS)
def test_every_difference_has_its_rule(run, results):
    result = results[run]
    assert [one for one in result.differences if conformance_page.packet_rule(one) is None] == []
    assert [one for one in result.table_differences if conformance_page.connection_rule(one) is None] == []
