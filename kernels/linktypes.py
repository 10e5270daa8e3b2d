"""Link types of capture files: LINKTYPE numbers, and how frames of each begin.

The numbers are those of https://www.tcpdump.org/linktypes.html.  A few old ones stand beside them because files hold
them: systems once wrote their own DLT number where the LINKTYPE belongs (DLT_RAW is 12, or 14 on OpenBSD).
"""

from __future__ import annotations

import numpy as np

from ..shm.layout import Link

LINKTYPES = {
    0: Link.NULL,
    1: Link.ETHERNET,
    9: Link.PPP,
    12: Link.RAW_IP,
    14: Link.RAW_IP,
    50: Link.PPP,  # PPP_HDLC: with or without address and control, as PPP may come too
    51: Link.PPPOE,
    101: Link.RAW_IP,
    104: Link.CISCO_HDLC,
    108: Link.LOOP,
    113: Link.COOKED,
    204: Link.PPP_WITH_DIRECTION,
    228: Link.RAW_IP,  # IPV4
    229: Link.RAW_IP,  # IPV6
    239: Link.NFLOG,
    276: Link.COOKED2,
}

LINKTYPES_END = max(LINKTYPES) + 1
LINK_OF = np.full(LINKTYPES_END, Link.UNKNOWN, np.uint8)
"""``LINKTYPES`` as kernels read it; numbers from ``LINKTYPES_END`` on are unknown."""
for _number, _link in LINKTYPES.items():
    LINK_OF[_number] = _link
LINK_OF.setflags(write=False)
