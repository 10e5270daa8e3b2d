"""Findings: how a kernel says what is broken."""

import numpy as np
from zonetrack.kernels.findings import Finding, report
from zonetrack.kernels.words import u64


def test_a_report_is_a_finding_and_its_numbers_and_no():
    out = np.full(5, 9, "u8")
    assert report(u64(out.ctypes.data), Finding.SLOT_TAG, u64(1), u64(2), u64(1 << 63)) == False  # noqa: E712 - numpy's
    assert out.tolist() == [Finding.SLOT_TAG, 1, 2, 1 << 63, 9]


def test_each_finding_has_a_number_of_its_own():
    assert len({int(finding) for finding in Finding}) == len(Finding.__members__)
