"""Each client error ends a command with the exit code that scripts rely on."""

from zonetrack.clients import errors


def test_exit_codes_are_the_published_ones():
    assert {code.name: code.value for code in errors.Exit} == {
        "OK": 0,
        "FAILED": 1,
        "USAGE": 2,
        "NO_SERVICE": 3,
        "NOTHING_MATCHED": 4,
    }


def test_errors_end_a_command_with_the_code_of_their_kind():
    assert errors.ZonetrackError.exit_code == errors.Exit.FAILED
    assert errors.NoServiceError.exit_code == errors.Exit.NO_SERVICE
    assert errors.NothingMatchedError.exit_code == errors.Exit.NOTHING_MATCHED
    assert issubclass(errors.NoServiceError, errors.ZonetrackError)
    assert issubclass(errors.NothingMatchedError, errors.ZonetrackError)
