"""A record as it is shown: who opened it, who replies, and what is known of both sides' windows."""

import numpy as np
import pytest
from zonetrack.kernels import shown
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import CONNECTION, ENTRY, OVS_PEERS, TCP_PEERS, Status

KEY = (0, 0xC0000201, 0, 0xC6336401, 40000 << 48 | 80 << 32 | 5 << 16 | 6 << 8 | 4)
SECOND = (0, 0xC6336401, 0, 0xCB007101, 80 << 48 | 50000 << 32 | 5 << 16 | 6 << 8 | 4)


@pytest.fixture
def entry():
    made = np.zeros(1, ENTRY)
    made["key"], made["expiry_ms"], made["created_ms"], made["state"] = KEY, 5000, 1000, 3
    made["packets"], made["bytes"], made["mark"] = (2, 1), (120, 60), 7
    return made


def show(entry, second=None, now_ms=2000):
    out = np.full(1, 0xFF, "u1").repeat(CONNECTION.itemsize).view(CONNECTION)
    key = np.array(second or KEY, "u8")
    shown.connection(
        *map(u64, (9, entry.ctypes.data, key.ctypes.data if second else 0, 4 << 32 | 2, now_ms, 100)),
        u64(out.ctypes.data),
    )
    return out[0]


def end(row, name):
    return ".".join(str(byte) for byte in row[name][12:])


@pytest.mark.parametrize(("status", "source", "port"), [(0, "192.0.2.1", 40000), (1, "198.51.100.1", 80)])
def test_the_source_is_who_opened_it(entry, status, source, port):
    entry["status"] = status
    row = show(entry)
    assert (end(row, "src"), row["sport"]) == (source, port) == (end(row, "reply_dst"), row["reply_dport"])
    assert row["status"] == 0 and (row["zone"], row["protocol"], row["family"]) == (5, 6, 4)


def test_what_is_counted(entry):
    row = show(entry)
    assert (row["id"], row["start_ms"], row["timeout_ms"], row["mark"]) == (4 << 32 | 9, 1100, 3000, 7)
    assert row["packets"].tolist() == [2, 1] and row["bytes"].tolist() == [120, 60]
    assert (row["helper"], row["label"].tolist(), row["reserved"].tolist()) == (0, [0, 0], [0] * 4)
    assert show(entry, now_ms=5001)["timeout_ms"] == 0


def test_replies_of_what_is_translated(entry):
    entry["status"] = Status.SOURCE_NAT
    row = show(entry, SECOND)
    assert (end(row, "reply_src"), end(row, "reply_dst")) == ("198.51.100.1", "203.0.113.1")
    assert (row["reply_sport"], row["reply_dport"], row["status"]) == (80, 50000, Status.SOURCE_NAT)
    entry["status"] = Status.SOURCE_NAT | Status.REPLIER_IS_HIGH
    assert end(show(entry, SECOND), "reply_src") == "203.0.113.1"


def test_windows_of_either_profile(entry):
    entry["protocol"].view(TCP_PEERS)["peer"]["scale"] = (7, 8)
    assert show(entry)["scales"].tolist() == [7, 8]
    entry["status"], entry["protocol"] = Status.OVS, 0
    entry["protocol"].view(OVS_PEERS)["peer"]["scale"] = (5, 6)
    assert show(entry)["scales"].tolist() == [5, 6]
