"""What can go wrong for a client, by whose fault it is, and the exit code a command ends with.

    ZonetrackError                 1   the operation failed
        NoServiceError             3   nothing answers under that instance name
        NothingMatchedError        4   the named zone, packet or connection is not there

Exit code 2 is click's: the command line itself was wrong.  An exception that carries ``exit_code``, as these and
click's do, is a message for a person; any other is a mistake of ours, and keeps its traceback.
"""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """How a command ends."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NO_SERVICE = 3
    NOTHING_MATCHED = 4


class ZonetrackError(Exception):
    """The operation failed; its text says what, where, and what was expected."""

    exit_code = Exit.FAILED


class NoServiceError(ZonetrackError):
    """No instance of that name is there."""

    exit_code = Exit.NO_SERVICE


class NothingMatchedError(ZonetrackError):
    """What was named is not there."""

    exit_code = Exit.NOTHING_MATCHED
