"""A line says when, how important, who, what, and the facts beside it; as JSON the same."""

import io
import json
import os
import re

import pytest
from zonetrack.service import log


@pytest.fixture
def written():
    """Return a function that sets the log up and returns what is written then."""

    def begin(**options):
        stream = io.StringIO()
        log.configure(stream=stream, **options)
        return stream

    yield begin
    log.configure(level="warning", as_json=False)


def test_a_line_for_a_person(written):
    stream = written(level="info", as_json=False)
    log.logger("keeper").warning("worker %d has gone", 1, extra=log.facts(restarts=3, code=-9))
    log.logger("worker").debug("not shown")
    pattern = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} warning keeper\[(\d+)\]: worker 1 has gone  restarts=3  code=-9\n"
    match = re.fullmatch(pattern, stream.getvalue())
    assert match and int(match[1]) == os.getpid()


def test_a_line_for_a_program(written):
    stream = written(level="debug", as_json=True)
    log.logger("control").debug("hm", extra=log.facts(socket="/x"))
    line = json.loads(stream.getvalue())
    assert line.pop("time") > 1.7e9
    assert line == {"level": "debug", "from": "control", "pid": os.getpid(), "text": "hm", "socket": "/x"}


@pytest.mark.parametrize("as_json", [False, True])
def test_a_traceback_stays_with_its_line(written, as_json):
    stream = written(level="info", as_json=as_json)
    try:
        raise ValueError("a mistake")
    except ValueError:
        log.logger("worker").exception("failed")
    text = stream.getvalue()
    if as_json:
        assert "ValueError: a mistake" in json.loads(text)["traceback"]
    else:
        assert text.splitlines()[0].endswith("failed") and "ValueError: a mistake" in text


def test_the_form_can_be_changed(written):
    first = written(level="info", as_json=False)
    second = written(level="error", as_json=True)
    log.logger("keeper").warning("not shown")
    log.logger("keeper").error("shown")
    assert first.getvalue() == ""
    assert json.loads(second.getvalue())["text"] == "shown"
