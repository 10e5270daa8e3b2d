"""The control socket stands where it may, belongs to whom it should, and knows who comes through it."""

import os
import socket
import stat

import pytest
from forked import Child
from zonetrack.service import door
from zonetrack.service.door import DoorError, Peer, Rights, open_door

NOBODY, STAFF = 65534, 50


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "run" / "x.sock")


@pytest.fixture
def opened(path):
    opened = open_door(path)
    yield opened
    opened.close()


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


# ------------------------------------------------------------------------------------------------ where
def test_a_door_makes_its_directory_and_is_its_owners_alone(opened, path):
    assert mode(path) == 0o600
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)


def test_its_directory_is_the_owners_and_the_groups_to_pass(tmp_path):
    open_door(str(tmp_path / "alone" / "x.sock")).close()
    assert mode(tmp_path / "alone") == 0o700
    open_door(str(tmp_path / "group" / "x.sock"), str(os.getegid())).close()
    assert mode(tmp_path / "group") == 0o710


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
@pytest.mark.parametrize(("group", "wanted"), [(None, 0o600), (str(os.getegid()), 0o660)])
def test_the_mode_is_there_from_the_first_moment(path, umask, group, wanted, monkeypatch):
    os.mkdir(os.path.dirname(path), 0o700)
    modes = []
    bound = socket.socket.listen
    monkeypatch.setattr(socket.socket, "listen", lambda one, *more: (modes.append(mode(path)), bound(one, *more))[1])
    before = os.umask(umask)
    try:
        open_door(path, group).close()
    finally:
        assert os.umask(before) == umask
    assert modes == [wanted]


@pytest.mark.parametrize(("permissions", "stands"), [(0o777, False), (0o770, True), (0o1777, True), (0o755, True)])
def test_a_directory_in_which_others_could_replace_it_is_refused(tmp_path, permissions, stands):
    directory = tmp_path / "shared"
    directory.mkdir()
    directory.chmod(permissions)
    if stands:
        open_door(str(directory / "x.sock")).close()
    else:
        with pytest.raises(DoorError, match="could replace the socket"):
            open_door(str(directory / "x.sock"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
@pytest.mark.parametrize(("uid", "gid", "permissions"), [(NOBODY, 0, 0o755), (0, STAFF, 0o775)])
def test_a_directory_of_somebody_else_is_refused(tmp_path, uid, gid, permissions):
    directory = tmp_path / "theirs"
    directory.mkdir()
    os.chown(directory, uid, gid)
    directory.chmod(permissions)
    with pytest.raises(DoorError, match="could replace the socket"):
        open_door(str(directory / "x.sock"))


def test_a_link_in_its_place_is_not_followed(tmp_path):
    (tmp_path / "precious").write_text("data")
    (tmp_path / "x.sock").symlink_to(tmp_path / "precious")
    with pytest.raises(DoorError, match="is there, and is no socket"):
        open_door(str(tmp_path / "x.sock"))
    assert (tmp_path / "precious").read_text() == "data" and mode(tmp_path / "precious") != 0o600


def test_a_door_that_is_closed_leaves_nothing(path):
    open_door(path).close()
    assert not os.path.exists(path)


def test_a_door_does_not_take_away_what_another_has_put_there(path):
    first = open_door(path)
    os.unlink(path)
    second = open_door(path)
    first.close()
    assert os.path.exists(path)
    second.close()


def test_a_door_is_kept_open_by_the_next_keeper(path):
    first = open_door(path)
    with socket.socket(socket.AF_UNIX) as early:
        early.connect(path)  # waits
        second = door.resume(path, os.dup(first.listener.fileno()))
        first.leave()
        assert os.path.exists(path)
        second.listener.accept()[0].close()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        assert door.peer_of(client).pid == os.getpid()
    second.close()
    assert not os.path.exists(path)


def test_a_door_whose_socket_was_taken_away_is_not_gone_on_with(path):
    first = open_door(path)
    os.unlink(path)
    with pytest.raises(DoorError, match="not there any more"):
        door.resume(path, os.dup(first.listener.fileno()))
    first.close()


def test_a_socket_that_a_dead_service_left_is_taken_away(path):
    left = open_door(path)
    left.listener.close()
    opened = open_door(path)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
    opened.close()


def test_a_socket_that_somebody_listens_on_is_not(opened, path):
    with pytest.raises(DoorError, match=f"process {os.getpid()} listens there already"):
        open_door(path)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)


def test_what_is_no_socket_is_left_alone(tmp_path):
    path = tmp_path / "precious"
    path.write_text("data")
    with pytest.raises(DoorError, match="is there, and is no socket"):
        open_door(str(path))
    assert path.read_text() == "data"


@pytest.mark.parametrize(("length", "fits"), [(107, True), (108, False)])
def test_a_path_has_107_bytes_at_most(length, fits, tmp_path):
    path = str(tmp_path) + "/"
    path += "s" * (length - len(path))
    if fits:
        open_door(path).close()
    else:
        with pytest.raises(DoorError, match="107 bytes at most, this one 108"):
            open_door(path)
        assert not os.path.exists(path)


def test_where_no_directory_can_be_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DoorError, match=r"x\.sock: Not a directory"):
        open_door(str(tmp_path / "file" / "x.sock"))


# ------------------------------------------------------------------------------------------------ who
@pytest.mark.parametrize(
    ("peer", "group", "rights"),
    [
        (Peer(1, 0, frozenset({0})), None, Rights.WRITE),
        (Peer(1, 1000, frozenset({1000})), None, Rights.WRITE),
        (Peer(1, 1001, frozenset({1001})), None, Rights.NONE),
        (Peer(1, 1001, frozenset({1001})), 7, Rights.NONE),
        (Peer(1, 1001, frozenset({7})), 7, Rights.READ),
        (Peer(1, 1001, frozenset({1001, 7})), 7, Rights.READ),
        (Peer(1, 1000, frozenset({7})), 7, Rights.WRITE),
    ],
)
def test_owner_and_root_write_and_the_group_reads(peer, group, rights):
    with socket.socket(socket.AF_UNIX) as listener:
        assert door.Door("x", listener, 1000, group, None).rights(peer) is rights


def test_the_kernel_says_who_comes(opened, path):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        accepted, _ = opened.listener.accept()
        with accepted:
            peer = door.peer_of(accepted)
    assert (peer.pid, peer.uid) == (os.getpid(), os.geteuid())
    assert os.getegid() in peer.groups and set(os.getgroups()) <= peer.groups


def test_a_door_without_a_group_that_is_there_is_not_opened(path):
    with pytest.raises(DoorError, match="no group 'no-such-group'"):
        open_door(path, "no-such-group")
    assert not os.path.exists(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize(
    ("uid", "groups", "rights"),
    [(NOBODY, [STAFF], Rights.READ), (NOBODY, [STAFF, 51], Rights.READ), (NOBODY, [51], None)],
)
def test_members_of_the_group_come_in_and_others_do_not(uid, groups, rights, tmp_path):
    for directory in (tmp_path, *tmp_path.parents):
        if directory.stat().st_uid == os.geteuid() and str(directory).startswith("/tmp/"):
            directory.chmod(0o755)
    opened = open_door(str(tmp_path / "x.sock"), str(STAFF))
    assert mode(opened.path) == 0o660

    def come(child):
        os.setgroups(groups)
        os.setgid(NOBODY)
        os.setuid(uid)
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(opened.path)
            except PermissionError:
                child.say(None)
            else:
                child.say("in")
                child.hear()

    with Child(come) as child:
        if rights is None:
            assert child.hear() is None
        else:
            assert child.hear() == "in"
            accepted, _ = opened.listener.accept()
            with accepted:
                assert opened.rights(door.peer_of(accepted)) is rights
    opened.close()
