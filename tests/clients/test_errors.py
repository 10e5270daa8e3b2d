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
def test_errors_end_a_command_with_the_code_of_their_kind(error, code):
    assert isinstance(error, errors.ZonetrackError)
    assert error.exit_code == code


@pytest.mark.parametrize("code", list(Code))
def test_every_code_on_the_wire_has_a_class_of_its_own(code):
    error = errors.of(code, "because", {"zone": 5})
    assert type(error) is not errors.ServerError and isinstance(error, errors.ServerError)
    assert (error.code, str(error), error.detail) == (code, "because", {"zone": 5})


def test_no_two_classes_share_a_code():
    codes = [kind.code for kind in errors.ServerError.__subclasses__()]
    assert sorted(codes) == sorted(Code)


def test_a_code_of_a_later_version_stands_in_the_text():
    error = errors.of("eaten", "by a dog")
    assert type(error) is errors.ServerError
    assert (str(error), error.detail) == ("eaten: by a dog", {})


def test_the_other_side_is_told_what_was_wrong_with_it():
    assert errors.RemoteProtocolError("no").code is Code.MALFORMED
    assert errors.RemoteProtocolError("no", Code.TOO_LARGE).code is Code.TOO_LARGE
