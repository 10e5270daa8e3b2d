"""Why shared memory was refused: one exception for each way, each with name, expected and found.

SegmentError
├── InstanceName     not a name that an instance can have
├── PortName         not a name that a port can have
├── NoSpace          fewer bytes free than the table needs
├── Forbidden        the operating system says no
├── Missing          there is no such segment
├── Exists           there is one already
├── InUse            another process runs this instance
├── WrongSize        shorter or longer than its header says
├── WrongMagic       something else's memory
├── WrongVersion     another version of the format
├── WrongDigest      the same version, but other records
├── Undescribed      it does not say how its records are laid out
├── WrongRegion      another region of an instance under this name
├── WrongBoot        made before this machine started
├── WrongState       being made, or put away
├── EstateError      what a dead keeper left cannot be taken over
└── WrongGeneration  of another creation than its CONTROL segment
RosterError
├── RosterFull       no place is left
└── NotAtRest        the place still has an operation to be repaired
"""

from __future__ import annotations


class SegmentError(Exception):
    """A segment cannot be made or used.

    Attributes:
        name: of the segment or instance.
        expected: what was needed.
        found: what there was.
    """

    complaint = "unusable"
    exit_code = 1
    """Of a command that it ends: it is a message for a person, not a mistake of ours."""

    def __init__(self, name: str, expected: object, found: object) -> None:
        """Say what was wrong with what."""
        super().__init__(name, expected, found)
        self.name = name
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        """Return one line for people."""
        return f"{self.name}: {self.complaint}: expected {self.expected}, found {self.found}"


class InstanceName(SegmentError):
    """Not a name that an instance can have."""

    complaint = "not an instance name"


class PortName(SegmentError):
    """Not a name that a port can have."""

    complaint = "not a port name"


class NoSpace(SegmentError):
    """Too little memory; ``expected`` and ``found`` are bytes, of the whole table and free ``where``."""

    complaint = "too little memory"

    def __init__(self, name: str, expected: int, found: int, where: str = "in /dev/shm") -> None:
        """Say which memory there is too little of."""
        super().__init__(name, expected, found)
        self.args = (name, expected, found, where)
        self.where = where

    def __str__(self) -> str:
        """Return the bytes needed and the bytes free."""
        return f"{self.name}: {self.complaint}: {self.expected} bytes needed, {self.found} bytes free {self.where}"


class Forbidden(SegmentError):
    """The operating system refuses access."""

    complaint = "no access"


class NotOurs(SegmentError):
    """Somebody else has made it, or may write it: whoever runs a service does not go by what others can change."""

    complaint = "not this user's alone"


class Missing(SegmentError):
    """There is no such segment."""

    complaint = "missing"


class Exists(SegmentError):
    """There is such a segment already."""

    complaint = "exists already"


class InUse(SegmentError):
    """Another process runs the instance; ``pid`` is its process id."""

    complaint = "in use"

    def __init__(self, name: str, expected: object, found: object, pid: int = 0) -> None:
        """Say which process has it."""
        super().__init__(name, expected, found)
        self.args = (name, expected, found, pid)
        self.pid = pid


class WrongSize(SegmentError):
    """The segment is shorter or longer than its header says."""

    complaint = "wrong size in bytes"


class WrongMagic(SegmentError):
    """The memory is not zonetrack's."""

    complaint = "not a zonetrack segment"


class WrongVersion(SegmentError):
    """Another version of the format."""

    complaint = "wrong format version"


class WrongDigest(SegmentError):
    """The same version, but its records are laid out in another way."""

    complaint = "wrong layout digest"


class Undescribed(SegmentError):
    """Its records are laid out in another way, and it does not say in which."""

    complaint = "of a layout that cannot be read"


class WrongRegion(SegmentError):
    """The segment of another region stands under this name."""

    complaint = "wrong region"


class WrongBoot(SegmentError):
    """Made before this machine started: its moments mean nothing now."""

    complaint = "made before the last boot"


class WrongState(SegmentError):
    """The segment is being made, or was put away."""

    complaint = "wrong state"


class EstateError(SegmentError):
    """What a keeper left to the next cannot be taken over, or not be written down."""

    complaint = "cannot be taken over"


class WrongGeneration(SegmentError):
    """The segment belongs to another creation than the instance's CONTROL segment."""

    complaint = "of another creation"


class RosterError(Exception):
    """A place on the roster cannot be had or given up."""

    exit_code = 1


class RosterFull(RosterError):
    """No place is left."""


class NotAtRest(RosterError):
    """The place has an operation half done: it must be repaired first."""
