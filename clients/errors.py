"""What can go wrong for a client, by whose fault it is, and the exit code a command ends with.

    ZonetrackError                 1   the operation failed
        NoServiceError             3   nobody answers
        LocalProtocolError         1   we were about to send what must not be sent
        RemoteProtocolError        1   the other side sent what is not MessagePack-RPC, or hung up in the middle
        TookTooLongError           1   the answer did not come in time
        ServerError                1   the other side refused; one class for each Code
            BadParameterError      2   ... and so on, see below
            NothingMatchedError    4   the named zone, packet or connection is not there

Exit code 2 is click's too: the command line itself was wrong.  An exception that carries ``exit_code``, as these and
click's do, is a message for a person; any other is a mistake of ours, and keeps its traceback.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Any, ClassVar


class Exit(IntEnum):
    """How a command ends."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NO_SERVICE = 3
    NOTHING_MATCHED = 4


class Code(StrEnum):
    """Every code an error on the wire can have; the list is closed, and grows only with the protocol's version."""

    MALFORMED = "malformed"  # not MessagePack-RPC; the connection ends
    TOO_LARGE = "too_large"  # more bytes, items or depth than is taken; the connection ends
    UNKNOWN_METHOD = "unknown_method"
    UNKNOWN_PARAMETER = "unknown_parameter"
    BAD_PARAMETER = "bad_parameter"  # missing, of the wrong type, or out of its range
    FORBIDDEN = "forbidden"  # the peer's credentials do not allow it
    NOTHING_MATCHED = "nothing_matched"
    TOO_MANY_CLIENTS = "too_many_clients"  # the connection ends
    TOO_MANY_REQUESTS = "too_many_requests"  # of this client, without waiting for answers
    SLOW_READER = "slow_reader"  # the client does not read what it asked for; the connection ends
    BUSY = "busy"  # something that excludes it is under way: try again
    STOPPING = "stopping"  # the service is going down; the connection ends
    FAILED = "failed"  # it was tried, and did not work


class ZonetrackError(Exception):
    """The operation failed; its text says what, where, and what was expected."""

    exit_code = Exit.FAILED


class NoServiceError(ZonetrackError):
    """Nobody answers: there is no such instance, or no socket that takes connections."""

    exit_code = Exit.NO_SERVICE

    @classmethod
    def at(cls, path: str, error: OSError | None) -> NoServiceError:
        """Return the error for a socket that cannot be reached, with what to do about it."""
        why = "it does not answer in time" if error is None or not error.errno else error.strerror
        cure = "start one with `zonetrack serve`, or say with --socket or --instance which is meant"
        if isinstance(error, PermissionError):
            cure = "ask its owner, or become a member of the group that its key control.group names"
        return cls(f"no service answers at {path}: {why}; {cure}")


class LocalProtocolError(ZonetrackError):
    """We were about to send what must not be sent; nothing was sent."""


class RemoteProtocolError(ZonetrackError):
    """The other side does not speak the protocol; nothing more can be read from it.

    Args:
        message: for a person.
        code: what to tell the other side, MALFORMED or TOO_LARGE.
    """

    def __init__(self, message: str, code: Code = Code.MALFORMED) -> None:
        super().__init__(message)
        self.code = code


class TookTooLongError(ZonetrackError):
    """The answer did not come in time; the connection is of no use any more."""


class ServerError(ZonetrackError):
    """The service refused, or failed.

    Args:
        message: for a person.
        detail: for a program: a map, its keys depend on the code.
    """

    code: ClassVar[str] = Code.FAILED

    def __init__(self, message: str, detail: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.detail = detail or {}


class MalformedError(ServerError):
    """What we sent was not MessagePack-RPC."""

    code = Code.MALFORMED


class TooLargeError(ServerError):
    """What we sent has more bytes, items or depth than the service takes."""

    code = Code.TOO_LARGE


class UnknownMethodError(ServerError):
    """There is no such method; an older service, perhaps."""

    code = Code.UNKNOWN_METHOD


class UnknownParameterError(ServerError):
    """The method has no such parameter; detail names it, and the nearest that there is."""

    exit_code = Exit.USAGE
    code = Code.UNKNOWN_PARAMETER


class BadParameterError(ServerError):
    """A parameter is missing, of the wrong type, or out of its range; detail names it."""

    exit_code = Exit.USAGE
    code = Code.BAD_PARAMETER


class ForbiddenError(ServerError):
    """Who asks may not do that."""

    code = Code.FORBIDDEN


class NothingMatchedError(ServerError):
    """What was named is not there."""

    exit_code = Exit.NOTHING_MATCHED
    code = Code.NOTHING_MATCHED


class TooManyClientsError(ServerError):
    """The service has as many clients as it takes."""

    code = Code.TOO_MANY_CLIENTS


class TooManyRequestsError(ServerError):
    """We asked too often without waiting for answers."""

    code = Code.TOO_MANY_REQUESTS


class SlowReaderError(ServerError):
    """We did not read the answers that we had asked for."""

    code = Code.SLOW_READER


class BusyError(ServerError):
    """Something that excludes it is under way."""

    code = Code.BUSY


class StoppingError(ServerError):
    """The service is going down."""

    exit_code = Exit.NO_SERVICE
    code = Code.STOPPING


class FailedError(ServerError):
    """It was tried, and did not work."""

    code = Code.FAILED


_BY_CODE = {kind.code: kind for kind in ServerError.__subclasses__()}


def of(code: str, message: str, detail: dict[str, Any] | None = None) -> ServerError:
    """Return the error for a code; a code that we do not know makes a plain ServerError with the code in its text."""
    kind = _BY_CODE.get(code)
    return kind(message, detail) if kind else ServerError(f"{code}: {message}", detail)
