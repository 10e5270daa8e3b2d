"""What a helper writes: ends by who sent the message, whichever end of the key he is."""

import numpy as np
import pytest
import tables
from bursts import CLIENT, SERVER
from foretelling import record
from helping import Bench, datagram
from zonetrack.kernels import entries, foretold
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import FORETOLD_MAX, Foretold

LOW, HIGH = 0xC0000201, 0xC6336401


@pytest.mark.parametrize(("source", "destination"), [(CLIENT, SERVER), (SERVER, CLIENT)])
@pytest.mark.parametrize("way", [0, 1])
def test_it_goes_from_the_other_end_to_the_sender(source, destination, way):
    bench = Bench()
    [verdict] = bench.verdicts(datagram(source, 1000, destination, 2000))
    entry = u64(entries.address(bench.one.views, u64(verdict["record"])))
    foretold.to_sender(bench.one.views, u64(2), entry, u64(way), u64(17), u64(4000), u64(Foretold.VIDEO))
    made = record(bench.one.views["foretold"] + np.uint64(2 * 128))
    sender, other = (source, destination) if way == 0 else (destination, source)
    numbers = {CLIENT: LOW, SERVER: HIGH}
    assert made["destination"].tolist() == [0, numbers[sender]] and made["source"].tolist() == [0, numbers[other]]
    assert int(made["last"]) == 4000 << 32 | 17 << 8 and made["kind"] == Foretold.VIDEO and made["flags"] == 0
    assert foretold.sender_port(bench.one.views, entry, u64(way)) == (1000, 2000)[way]
    assert verdict["record"] != tables.NONE


def test_the_word_says_how_many_and_whether_it_was_right():
    assert foretold.count_of(foretold.REFUSED | u64(3)) == 3 and foretold.count_of(foretold.NOTHING) == 0
    assert int(foretold.REFUSED) > FORETOLD_MAX
