"""The exceptions of shared memory: one line for people, the parts for programs."""

import pickle

import pytest
from zonetrack.shm import errors


def test_a_segment_error_names_what_it_is_about_and_what_was_expected_and_found():
    error = errors.WrongVersion("/zonetrack.a.control", 1, 7)
    assert (error.name, error.expected, error.found) == ("/zonetrack.a.control", 1, 7)
    assert str(error) == "/zonetrack.a.control: wrong format version: expected 1, found 7"


def test_too_little_space_says_bytes_needed_and_free():
    assert str(errors.NoSpace("a", 300, 200)) == "a: too little memory: 300 bytes needed, 200 bytes free in /dev/shm"


@pytest.mark.parametrize("kind", errors.SegmentError.__subclasses__())
def test_every_kind_has_its_complaint_and_survives_the_way_to_another_process(kind):
    error = pickle.loads(pickle.dumps(kind("a", 1, 2)))
    assert type(error) is kind
    assert str(error) == str(kind("a", 1, 2))
    assert kind.complaint != errors.SegmentError.complaint


def test_in_use_carries_the_pid():
    assert pickle.loads(pickle.dumps(errors.InUse("a", "nobody", "process 5", 5))).pid == 5


def test_too_little_space_says_where():
    error = pickle.loads(pickle.dumps(errors.NoSpace("a", 300, 200, "of memory")))
    assert error.where == "of memory"
    assert str(error).endswith("200 bytes free of memory")
