"""What every test run shares: the count of corpus cases, a failure where there should have been some, no network, no hurry.

A test that compares with ../shared/corpus says how many cases it went through with pytest's own
``record_property("corpus_cases", n)``; the closing summary adds them up.  With ``ZONETRACK_CORPUS=required`` in the
environment, as CI sets it where the corpus is there, a run without any fails: a test that skips proves nothing.
"""

import os
import signal
import sys

import hypothesis
import pytest

# who was started in the background does not hear SIGINT, nor do its children: these are told to stop by it
signal.signal(signal.SIGINT, signal.default_int_handler)

# a test asserts results, never timing: the first example may have a kernel to compile, and the machine others to run
hypothesis.settings.register_profile("unhurried", deadline=None)
hypothesis.settings.load_profile("unhurried")

CASES = "corpus_cases"
REQUIRED = os.environ.get("ZONETRACK_CORPUS") == "required"


def cases_in(reports):
    """Return the corpus cases that the reports of passed and failed tests have recorded."""
    return sum(int(value) for report in reports for name, value in report.user_properties if name == CASES)


def corpus_cases(config):
    """Return the corpus cases of the whole run; only the calls count, not setup and teardown, which repeat them."""
    stats = config.pluginmanager.get_plugin("terminalreporter").stats
    return cases_in(report for kind in ("passed", "failed") for report in stats.get(kind, ()) if report.when == "call")


def pytest_sessionfinish(session, exitstatus):
    """Fail a run that had to go through the corpus and did not."""
    is_whole = not session.config.option.collectonly and not hasattr(session.config, "workerinput")  # not a part of one
    if REQUIRED and exitstatus == 0 and is_whole and not corpus_cases(session.config):
        session.exitstatus = 1


def pytest_terminal_summary(terminalreporter, exitstatus, config):
    """Say how many corpus cases ran."""
    cases = corpus_cases(config)
    if cases:
        terminalreporter.write_line(f"corpus: {cases:,} cases ran")
    elif REQUIRED:
        terminalreporter.write_line("corpus: no case ran, though ZONETRACK_CORPUS=required", red=True)


@pytest.fixture(scope="session", autouse=True)
def nobody_is_asked_for_addresses():
    """Have scapy take the broadcast address where a test names none: it would ask the network, and wait for seconds."""
    if "scapy.layers.l2" in sys.modules:
        sys.modules["scapy.config"].conf.neighbor.resolvers.clear()
