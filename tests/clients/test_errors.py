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


def test_every_error_is_a_zonetrack_error_and_carries_its_code():
    assert errors.ZonetrackError.exit_code == errors.Exit.FAILED
    for error in errors.ZonetrackError.__subclasses__():
        assert error.exit_code in (errors.Exit.NO_SERVICE, errors.Exit.NOTHING_MATCHED)
