"""The table that kernels read says what the dict says."""

import pytest
from zonetrack.kernels.linktypes import LINK_OF, LINKTYPES, LINKTYPES_END
from zonetrack.shm.layout import Link


def test_every_number_has_its_link_or_none():
    assert [Link(link) for link in LINK_OF] == [LINKTYPES.get(n, Link.UNKNOWN) for n in range(LINKTYPES_END)]


def test_the_table_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        LINK_OF[0] = Link.ETHERNET
