"""Each client error ends a command with the exit code that scripts rely on, and each code on the wire has its class."""

import pytest
from zonetrack.clients import errors
from zonetrack.clients.errors import Code, Exit


def test_exit_codes_are_the_published_ones():
    assert {code.name: code.value for code in Exit} == {
        "OK": 0,
        "FAILED": 1,
        "USAGE": 2,
        "NO_SERVICE": 3,
        "NOTHING_MATCHED": 4,
    }


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ZonetrackError("no"), Exit.FAILED),
        (errors.NoServiceError("no"), Exit.NO_SERVICE),
        (errors.LocalProtocolError("no"), Exit.FAILED),
        (errors.RemoteProtocolError("no"), Exit.FAILED),
        (errors.TookTooLongError("no"), Exit.FAILED),
        (errors.NothingMatchedError("no"), Exit.NOTHING_MATCHED),
        (errors.BadParameterError("no"), Exit.USAGE),
        (errors.UnknownParameterError("no"), Exit.USAGE),
        (errors.ForbiddenError("no"), Exit.FAILED),
        (errors.StoppingError("no"), Exit.NO_SERVICE),
    ],
)
def test_errors_end_a_command_with_the_code_of_their_kind():
    assert errors.ZonetrackError.exit_code == errors.Exit.FAILED
    assert errors.NoServiceError.exit_code == errors.Exit.NO_SERVICE
    assert errors.NothingMatchedError.exit_code == errors.Exit.NOTHING_MATCHED
    assert issubclass(errors.NoServiceError, errors.ZonetrackError)
    assert issubclass(errors.NothingMatchedError, errors.ZonetrackError)
