"""What a service under some load answers to who watches it: the same in each run, and what it says a little later."""


def answers(later=0):
    """Return answers to ``stats`` and to ``summary``; ``later`` 1, 2, ...: after so many turns."""
    counters = {
        "packets": 10_000 + 1000 * later,
        "bytes": 1_000_000 + 100_000 * later,
        "insert": 1_000 + 10 * later,
        "remove": 100 + later,
        "invalid": 50 + 2 * later,
    }
    worker = {
        "number": 0,
        "pid": 4711,
        "state": "running",
        "restarts": 2,
        "cpu_s": 10.0 + 1.5 * later,
        "packets": 10_000 + 1000 * later,
        "queues": [["lab", 0], ["lab", 1]],
        "counters": {"insert": counters["insert"], "invalid": counters["invalid"]},
    }
    idle = {"number": 1, "pid": 0, "state": "waiting", "restarts": 9, "cpu_s": None, "packets": 0, "queues": []}
    queue = {
        "queue": 0,
        "worker": 0,
        "rx_packets": 10_000 + 1000 * later,
        "tx_packets": 9_000 + 900 * later,
        "tx_full": 3 * later,
        "bad_slots": later,
        "bad_lengths": 0,
        "bad_cursors": 0,
    }
    stats = {
        "instance": "lab",
        "uptime_s": 273_900.0 + 2 * later,
        "connections": 900,
        "limit": 1000,
        "capacity": 2000,
        "zones_in_use": 3,
        "counters": counters,
        "workers": [worker, idle],
        "ports": [{"name": "lab", "queues": [queue, queue | {"queue": 1, "rx_packets": 7, "tx_packets": 7}]}],
        "control": {"clients": 1},
    }

    def talker(address, zone, connections, others=0):
        return {
            "address": address,
            "zone": zone,
            "connections": connections,
            "others": others,
            "packets": 12_345,
            "bytes": 1_234_567,
        }

    summary = {
        "age_s": 0.5,
        "took_s": 0.031,
        "connections": 900,
        "expired": 7,
        "overdue_ms": 1500,
        "unreplied": 90,
        "assured": 700,
        "related": 1,
        "translated": 0,
        "ipv6": 20,
        "protocols": {"udp": 100, "tcp": 800},
        "states": {"tcp": {"ESTABLISHED": 700, "SYN_SENT": 90}, "ovs": {"ESTABLISHED": 10}, "sctp": {}},
        "sources": [talker("192.0.2.1", 5, 450), talker("2001:db8:1234:5678:9abc:def0:1234:5678", 65535, 20, 3)],
        "destinations": [talker("198.51.100.1", 5, 900)],
        "zones": [
            {"zone": 5, "count": 950 - 10 * later, "limit": 1000},
            {"zone": 7, "count": 100, "limit": None},
            {"zone": 9, "count": 5 * later, "limit": 10_000_000},
        ],
        "reasons": {
            "invalid": {"tcp_seq_above": 48 + 2 * later, "l4csum_err": 2},
            "refused": {"zone_full": 4 * later},
            "let_by": {"not_tracked": 12},
        },
    }
    return stats, summary
