"""Rules of a host's own firewall that put packets into queues, by whichever tool can make them here."""

import os
import shutil
import subprocess

import pytest
from wires import Namespace, run

CHAINS = ("INPUT", "FORWARD", "OUTPUT")


def need():
    """Skip the test where nothing can put packets into a queue."""
    if os.geteuid() != 0:
        pytest.skip("queues of the firewall need root")
    namespace = Namespace()
    try:
        with namespace.entered():
            if not any(_ask(words) for words in (_nft("OUTPUT", 1, 1, ""), _iptables("OUTPUT", 1, 1, ""))):
                pytest.skip("neither nft(8) nor iptables-legacy(8) can put packets into a queue here")
    finally:
        namespace.close()


def queue(chain, first, last=None, match="", bypass=False, six=False):
    """Put packets of a chain of this namespace into queues.

    Args:
        chain: of CHAINS.
        first, last: numbers of the queues.
        match: ``udp``, ``tcp`` or ``icmp``: only those.
        bypass: whether they go on while nobody listens.
        six: whether it is IPv6 instead of IPv4.
    """
    last = first if last is None else last
    for words in (_nft(chain, first, last, match, bypass, six), _iptables(chain, first, last, match, bypass, six)):
        if _ask(words):
            return
    raise AssertionError("the firewall takes no rule")


def count_mark(mark):
    """Count packets that leave this namespace with a mark; returns a function that tells how many there were."""
    if shutil.which("nft") is None:
        pytest.skip("nft(8) is not here")
    run("nft", "add table ip seen; add chain ip seen out { type filter hook postrouting priority 100; }")
    run("nft", f"add rule ip seen out meta mark {mark} counter")

    def seen():
        words = run("nft", "list chain ip seen out").split()
        return int(words[words.index("packets") + 1])

    return seen


def _nft(chain, first, last, match, bypass=False, six=False):
    told = f"queue flags bypass to {first}-{last}" if bypass else f"queue to {first}-{last}"
    only = f"meta l4proto {match}" if match else ""
    hook = f"type filter hook {chain.lower()} priority 0;"
    family = "ip6" if six else "ip"
    made = f"add table {family} queued; add chain {family} queued {chain} {{ {hook} }};"
    return ("nft", f"{made} add rule {family} queued {chain} {only} {told}")


def _iptables(chain, first, last, match, bypass=False, six=False):
    words = [
        "ip6tables-legacy" if six else "iptables-legacy",
        "-w",
        "-A",
        chain,
        *(("-p", match) if match else ()),
        "-j",
        "NFQUEUE",
    ]
    words += ["--queue-balance", f"{first}:{last}"] if last != first else ["--queue-num", str(first)]
    return (*words, *(("--queue-bypass",) if bypass else ()))


def _ask(words):
    if shutil.which(words[0]) is None:
        return False
    return subprocess.run(words, capture_output=True, check=False).returncode == 0
