"""What devices have in common: what is open is closed together, and one that cannot be opened wholly leaves nothing open."""

import os

import pytest
from zonetrack.service.ports.device import Device


class Files(Device):
    """A device of files that are there, and of one that is not."""

    def __init__(self, *paths):
        super().__init__("files:all", "files", len(paths), 5)
        self.opened = []
        with self._opening():
            for path in paths:
                self.opened.append(self._keep(os.open(path, os.O_RDONLY)))


def is_open(descriptor):
    """Return whether a descriptor is."""
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "file"
    made.touch()
    return made


def test_a_device_is_open_until_the_end_of_its_block(path):
    with Files(path, path) as made:
        assert all(map(is_open, made.opened))
    assert not any(map(is_open, made.opened))


def test_closing_it_again_closes_nothing_of_others(path):
    made = Files(path)
    made.unlink()
    with open(path) as other:
        assert other.fileno() == made.opened[0]
        made.unlink()
        assert is_open(other.fileno())


def test_one_that_cannot_be_opened_wholly_is_not_open_at_all(path, tmp_path):
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError):
        Files(path, path, tmp_path / "nothing")
    assert set(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(("workers", "places"), [(1, 2), (2, 2), (5, 5)])
def test_it_has_a_place_for_each_queue_and_each_worker(path, workers, places):
    with Files(path, path) as made:
        assert (made.name, made.queues, made.zone, made.is_whole) == ("files", 2, 5, True)
        assert made.places(workers) == places
