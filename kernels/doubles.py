"""One tuple, two connections: what one is translated to is what another has been sent as, straight to the same host.

    A:10000 -> V:80     becomes A:10000 -> S:80, and its replies come from S:80
    A:10000 -> S:80     is a connection of its own, which gets another port, lest its replies be taken for those

Both have the key A:10000, S:80, one as its own, one as that of its replies (index, I2).  A packet that has not been
translated in its zone yet tells which is meant: from A it is of the second, from S of the first.  One that has been is of
the first, whoever it comes from; so this is only asked for packets that are known to be fresh.
"""

from __future__ import annotations

from ..shm.layout import End, Setting
from . import delete_list, entries, index, locks, memory, nat
from .jit import kernel
from .words import ZERO, u64

_NO_EXPIRY, _EXPIRED = u64(Setting.NO_EXPIRY), u64(End.EXPIRED)
_TRANSLATED_ORIG = u64(nat.Seen.ORIG_TRANSLATED)


@kernel
def other(views, parsed, key, record, seen, settings, now_ms):
    """Return the connection of a fresh packet that looks like a translated one of another.

    Args:
        parsed: PARSED of it.
        key: address of its key.
        record: that other's, whose lock is held and dropped here.
        seen: how the packet was found there: ORIG_TRANSLATED or REPLY_TRANSLATED.
        settings: of its zone.
        now_ms: u64.

    Returns:
        A record, its lock held; MISS: there is none, so the packet may open one.  BUSY.  What looks like a reply is taken
        for one of ``record`` where there is no other.
    """
    memory.seldom()
    locks.drop(entries.address(views, record) + entries.LOCK)
    found = index.find_other(views, key, u64(parsed.hash), u64(parsed.zone), record)
    if found == index.MISS and seen != _TRANSLATED_ORIG:
        found = index.confirm(views, record, key)
    if found == index.MISS or found == index.BUSY:
        return found
    entry = entries.address(views, found)
    if not nat.is_sent(nat.see(views, entry, key, u64(parsed.high_is_source) != ZERO)) and found != record:
        locks.drop(entry + entries.LOCK)  # one that has the tuple since, as another's translation
        return index.MISS
    if memory.read64(entry + entries.EXPIRY) <= now_ms and settings & _NO_EXPIRY == ZERO:
        delete_list.end(views, found, _EXPIRED)
        locks.drop(entry + entries.LOCK)
        return index.MISS
    return found
