"""The probes of the TCP matrices: what leads to each of twelve states, and the 25 packets sent there from each side."""

from segments import tcp

OPTIONS = "mss1460 sackok ws7"


def ways_to_states():
    """Return what leads to each state of the matrix, and the next numbers of client and server there."""
    syn = tcp("c", "S", 1000, win=64240, options=OPTIONS)
    crossing = tcp("s", "S", 5000, win=65160, options=OPTIONS)
    synack = tcp("s", "SA", 5000, 1001, 65160, options=OPTIONS)
    opened = [
        *(syn, synack, tcp("c", "A", 1001, 5001, 502)),
        *(tcp("c", "PA", 1001, 5001, 502, 100), tcp("s", "PA", 5001, 1101, 509, 100), tcp("c", "A", 1101, 5101, 502)),
    ]
    fin = tcp("c", "FA", 1101, 5101, 502)
    both = [*opened, fin, tcp("s", "FA", 5101, 1102, 509)]
    return {
        "NONE": ([], 1000, 5000),
        "SYN_SENT": ([syn], 1001, 5000),
        "SYN_SENT2": ([syn, crossing], 1001, 5001),
        "SYN_RECV": ([syn, synack], 1001, 5001),
        "ESTABLISHED": (opened, 1101, 5101),
        "FIN_WAIT(c)": ([*opened, fin], 1102, 5101),
        "FIN_WAIT(s)": ([*opened, tcp("s", "FA", 5101, 1101, 509)], 1101, 5102),
        "CLOSE_WAIT(c FIN)": ([*opened, fin, tcp("s", "A", 5101, 1102, 509)], 1102, 5101),
        "LAST_ACK(c FIN first)": (both, 1102, 5102),
        "TIME_WAIT": ([*both, tcp("c", "A", 1102, 5102, 502)], 1102, 5102),
        "CLOSE(rst by s)": ([*opened, tcp("s", "RA", 5101, 1101, 0)], 1101, 5101),
        "CLOSE(rst by c)": ([*opened, tcp("c", "RA", 1101, 5101, 0)], 1101, 5101),
    }


def probes(side, mine, yours):
    """Return the packets of the matrix by name: flags, seq, ack, length, options."""
    first, first_ack = (1000, 5001) if side == "c" else (5000, 1001)
    return {
        "SYN next-seq": ("S", mine, 0, 0, OPTIONS),
        "SYN far seq": ("S", mine + 1000000, 0, 0, OPTIONS),
        "SYN same as first": ("S", first, 0, 0, OPTIONS),
        "SYN/ACK next-seq": ("SA", mine, yours, 0, OPTIONS),
        "SYN/ACK as handshake": ("SA", first, first_ack, 0, OPTIONS),
        "SYN/ACK wrong ack": ("SA", mine, yours + 77777, 0, OPTIONS),
        "ACK in window": ("A", mine, yours, 0, ""),
        "ACK ahead of data (ack too high)": ("A", mine, yours + 100000, 0, ""),
        "ACK far below": ("A", mine, yours - 100000, 0, ""),
        "data 10 bytes": ("PA", mine, yours, 10, ""),
        "data above window": ("PA", mine + 10000000, yours, 10, ""),
        "data old (below)": ("PA", mine - 50, yours, 10, ""),
        "FIN/ACK exact": ("FA", mine, yours, 0, ""),
        "FIN/ACK far": ("FA", mine + 10000000, yours, 0, ""),
        "RST exact": ("R", mine, 0, 0, ""),
        "RST/ACK exact": ("RA", mine, yours, 0, ""),
        "RST in window +5": ("R", mine + 5, 0, 0, ""),
        "RST far": ("R", mine + 10000000, 0, 0, ""),
        "RST seq 0 with ack": ("RA", 0, yours, 0, ""),
        "RST seq 0 no ack": ("R", 0, 0, 0, ""),
        "no flags": ("", mine, 0, 0, ""),
        "FIN alone": ("F", mine, 0, 0, ""),
        "SYN+FIN": ("SF", mine, 0, 0, ""),
        "SYN+RST": ("SR", mine, 0, 0, ""),
        "PSH+URG+ACK": ("PAU", mine, yours, 3, ""),
    }
