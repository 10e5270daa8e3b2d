"""How many bytes a table of so many connections needs, region by region, and why.

The arithmetic of the index.  A segment has 8 pairs of lines, each pair a bucket of 16 slots, and splits when one of its
pairs overflows.  With keys spread by a good hash the load of a pair is Poisson; a pair of mean 7.6 overflows once in
500, one of mean 15.3 once in 3.  Summed up over all depths, a zone of any size has 58 connections in a segment at
least, and 67 at most: the pool is sized for 55, plus one segment for each zone in use; what long churn splits is merged
again when the pool gets short (service/shrinker).  A directory has four times the segments of its zone, five where they
are most uneven (the deepest segment is one or two bits deeper than the mean, once in a hundred zones); so there are
none that have more than five times all segments, of each depth as many as four times all segments fill, and not more
than there are zones in use; and one more of each, to double into.

The slack of the slabs.  A participant keeps up to two chains of free records to itself, and nobody takes from another's
list; so there are more records than connections: room for 16 participants' chains, but never over an eighth.
"""

from __future__ import annotations

from dataclasses import dataclass

from .layout import (
    BLOCK_RECORDS,
    CHAINS,
    CONNECTIONS_MAX,
    DATAGRAM_BYTES,
    DELETE_BYTES,
    DELETE_LIST_MAX,
    DEPTH_MAX,
    ENTRY_BYTES,
    EXPECTATION_BYTES,
    EXPECTATION_TABLE_BYTES,
    EXPECTATIONS_MAX,
    EXTENSION_BYTES,
    FRAGMENT_BYTES,
    FRAGMENTS_MAX,
    FRAME_SLOT_BYTES,
    GLOBAL_BYTES,
    HEADER_BYTES,
    HELPER_RULES_MAX,
    HOLDER_BYTES,
    PAGE_BYTES,
    PARTICIPANT_BYTES,
    POLICIES_MAX,
    POLICY_BYTES,
    QUOTA_BYTES,
    ROSTER_MAX,
    SAMPLE_BYTES,
    SAMPLES_MAX,
    SEGMENT_BYTES,
    SEGMENT_SLOT_BYTES,
    STORE_BYTES,
    ZONE_BYTES,
    ZONE_REASON_BYTES,
    ZONE_REASONS_MAX,
    ZONES_MAX,
    Region,
    Slab,
)

CONNECTIONS_PER_SEGMENT_MIN = 55
ZONES_IN_USE_DEFAULT = 4096
EXTENSION_SHARE_DEFAULT = 90
"""Extension records per 1,000 connections; 1,000 for a NAT gateway."""
CONNECTIONS_DEFAULT = 131_072
SLACK_PARTICIPANTS = 16
CHAIN_SLACK = 2 * ROSTER_MAX
"""Words of a pool beyond its blocks: each participant that leaves puts back two chains that are not full."""


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


@dataclass(frozen=True)
class Geometry:
    """What follows from the three numbers that an operator chooses; the same in every process of an instance."""

    connections: int
    zones_in_use: int = ZONES_IN_USE_DEFAULT
    extension_share: int = EXTENSION_SHARE_DEFAULT

    def __post_init__(self) -> None:
        if not 1 <= self.connections <= CONNECTIONS_MAX:
            raise ValueError(f"connections must be 1 to {CONNECTIONS_MAX}, not {self.connections}")
        if not 1 <= self.zones_in_use <= ZONES_MAX:
            raise ValueError(f"zones in use must be 1 to {ZONES_MAX}, not {self.zones_in_use}")
        if not 0 <= self.extension_share <= 1000:
            raise ValueError(f"extension share must be 0 to 1000 per thousand, not {self.extension_share}")

    def blocks(self, slab: Slab) -> int:
        """Return the blocks of a slab."""
        wanted = self.connections
        if slab is Slab.EXTENSIONS:
            wanted = -(-self.connections * self.extension_share // 1000)
        slack = min(wanted // 8, SLACK_PARTICIPANTS * 2 * BLOCK_RECORDS)
        return -(-(wanted + slack) // BLOCK_RECORDS)

    def records(self, slab: Slab) -> int:
        """Return the records of a slab: whole blocks."""
        return self.blocks(slab) * BLOCK_RECORDS

    def pool_words(self, slab: Slab) -> int:
        """Return the words of a slab's pool of chains."""
        return self.blocks(slab) + CHAIN_SLACK

    @property
    def segments(self) -> int:
        """Segments of the index."""
        keys = self.connections + self.connections * self.extension_share // 1000
        return -(-keys // CONNECTIONS_PER_SEGMENT_MIN) + self.zones_in_use + 1

    def directories(self, depth: int) -> int:
        """Return how many directories of 2**depth entries there are."""
        if 1 << depth > 5 * self.segments:
            return 0
        return min(self.zones_in_use, 4 * self.segments >> depth) + 1

    @property
    def directory_first(self) -> list[int]:
        """Number of the first directory of each depth, and of all behind the last."""
        first = [0]
        for depth in range(DEPTH_MAX + 1):
            first.append(first[-1] + self.directories(depth))
        return first

    @property
    def directory_offset(self) -> list[int]:
        """Word where the directories of each depth begin, and the end.  Offset 0 means none, so 0 is not used."""
        offset = [16]
        for depth in range(DEPTH_MAX + 1):
            offset.append(offset[-1] + (self.directories(depth) << depth))
        return offset

    def arrays(self, region: Region) -> dict[str, tuple[int, int]]:
        """Return the arrays of a region, in order, with records and bytes of each."""
        if region is Region.CONTROL:
            arrays = {
                "globals": (1, GLOBAL_BYTES),
                "zones": (ZONES_MAX, ZONE_BYTES),
                "quotas": (ZONES_MAX, QUOTA_BYTES),
                "policies": (POLICIES_MAX, POLICY_BYTES),
                "participants": (ROSTER_MAX, PARTICIPANT_BYTES),
                "delete_lists": (ROSTER_MAX, DELETE_LIST_MAX * DELETE_BYTES),
                "samples": (ROSTER_MAX, SAMPLES_MAX * SAMPLE_BYTES),
                "zone_reasons": (ROSTER_MAX, ZONE_REASONS_MAX * ZONE_REASON_BYTES),
                "expectation_table": (1, EXPECTATION_TABLE_BYTES),
                "expectations": (EXPECTATIONS_MAX, EXPECTATION_BYTES),
                "expectation_chains": (2 * CHAINS, 4),
                "helper_rules": (HELPER_RULES_MAX, 8),
            }
            arrays["blocks"] = (self.blocks(Slab.ENTRIES), 4)
            for slab in Slab:
                arrays[f"pool_{slab.name.lower()}"] = (self.pool_words(slab), 8)
            return arrays
        if region is Region.ENTRIES:
            return {"entries": (self.records(Slab.ENTRIES), ENTRY_BYTES)}
        if region is Region.DUE:
            return {"due": (self.records(Slab.ENTRIES), 4)}
        if region is Region.EXTENSIONS:
            return {"extensions": (self.records(Slab.EXTENSIONS), EXTENSION_BYTES)}
        if region is Region.FRAGMENTS:
            return {
                "store": (1, STORE_BYTES),
                "holders": (ROSTER_MAX, HOLDER_BYTES),
                "fragment_buckets": (FRAGMENTS_MAX, 4),
                "datagrams": (FRAGMENTS_MAX, DATAGRAM_BYTES),
                "fragments": (FRAGMENTS_MAX, FRAGMENT_BYTES),
                "buffers": (FRAGMENTS_MAX, FRAME_SLOT_BYTES),
            }
        return {
            "segments": (self.segments, SEGMENT_BYTES),
            "slots": (self.segments, SEGMENT_SLOT_BYTES),
            "directories": (self.directory_offset[-1], 4),
            "directory_owners": (self.directory_first[-1], 4),
        }

    def offsets(self, region: Region) -> dict[str, int]:
        """Return the byte offset of each array in its segment; each begins on two cache lines' boundary."""
        offset, offsets = HEADER_BYTES, {}
        for name, (count, size) in self.arrays(region).items():
            offsets[name] = offset
            offset += _up(count * size, 128)
        return offsets

    def region_bytes(self, region: Region) -> int:
        """Return the bytes of a whole segment, header included, in whole pages."""
        used = sum(_up(count * size, 128) for count, size in self.arrays(region).values())
        return _up(HEADER_BYTES + used, PAGE_BYTES)

    @property
    def total_bytes(self) -> int:
        """Bytes of shared memory that the instance takes."""
        return sum(self.region_bytes(region) for region in Region)
