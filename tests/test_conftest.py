"""A run that should have met the corpus, and did not, fails; one that did says how many cases it went through."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
def test_cases(record_property):
    record_property("corpus_cases", 41)

def test_other():
    assert True
"""


@pytest.mark.parametrize(
    ("corpus", "selected", "status", "says"),
    [
        ("required", "test_cases", 0, "corpus: 41 cases ran"),
        ("required", "test_other", 1, "corpus: no case ran"),
        ("", "test_other", 0, "1 passed"),
    ],
)
def test_corpus_cases_are_counted(corpus, selected, status, says, tmp_path):
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_some.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-k", selected],
        cwd=tmp_path,
        env=os.environ | {"ZONETRACK_CORPUS": corpus},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout
    assert says in done.stdout
