"""A file of parts is whole or refused; until it is whole, what was there before stands in its place."""

import hashlib

import numpy as np
import pytest
from zonetrack.service import saved_file
from zonetrack.service.saved_file import Saved, SavedError, written


def write(path, *parts, **description):
    with written(path, description) as writer:
        for name, *data in parts:
            writer.part(name, *data)
        return writer.finish()


def test_parts_come_back_in_order(tmp_path):
    numbers = np.arange(10, dtype="u4")
    size = write(tmp_path / "x", ("one", numbers), ("none",), ("two", numbers[:2], numbers[::3]), said=7)
    assert size == (tmp_path / "x").stat().st_size
    whole = Saved(tmp_path / "x")
    assert whole.description == {"said": 7}
    found = [(part.name, part.data.view("u4").tolist()) for part in whole.parts()]
    assert found == [("one", list(range(10))), ("none", []), ("two", [0, 1, 0, 3, 6, 9])]


def test_what_goes_wrong_leaves_what_was_there(tmp_path):
    write(tmp_path / "x", ("one", np.zeros(3, "u1")))
    before = (tmp_path / "x").read_bytes()
    with pytest.raises(RuntimeError), written(tmp_path / "x", {}) as writer:
        writer.part("other", np.ones(9, "u1"))
        raise RuntimeError
    assert (tmp_path / "x").read_bytes() == before and len(list(tmp_path.iterdir())) == 1


def test_every_byte_counts(tmp_path):
    write(tmp_path / "x", ("one", np.arange(20, dtype="u1")), said=1)
    whole = (tmp_path / "x").read_bytes()
    for at in range(len(whole)):
        (tmp_path / "x").write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(SavedError, match=r"cut short|not a saved table"):
            Saved(tmp_path / "x")
        (tmp_path / "x").write_bytes(whole[:at])
        with pytest.raises(SavedError, match=r"cut short|not a saved table"):
            Saved(tmp_path / "x")
    with pytest.raises(SavedError, match="cannot be read"):
        Saved(tmp_path / "none")
    assert saved_file.CHECKSUM_BYTES == 32


@pytest.mark.parametrize("cut", [1, 10, 24])
def test_parts_that_are_not_as_long_as_they_say_are_refused_though_the_checksum_fits(tmp_path, cut):
    write(tmp_path / "x", ("one", np.arange(20, dtype="u1")), said=1)
    whole = (tmp_path / "x").read_bytes()[: -saved_file.CHECKSUM_BYTES - cut]
    (tmp_path / "x").write_bytes(whole + hashlib.blake2b(whole, digest_size=saved_file.CHECKSUM_BYTES).digest())
    with pytest.raises(SavedError, match="its parts are not as long as it says"):
        Saved(tmp_path / "x")


def test_a_description_that_is_none_is_refused_though_the_checksum_fits(tmp_path):
    whole = saved_file.SAVED_MAGIC + (3).to_bytes(4, "little") + b"{x}"
    (tmp_path / "x").write_bytes(whole + hashlib.blake2b(whole, digest_size=saved_file.CHECKSUM_BYTES).digest())
    with pytest.raises(SavedError, match="what it says of itself cannot be read"):
        Saved(tmp_path / "x")
