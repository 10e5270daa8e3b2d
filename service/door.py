"""The door: where the control socket stands, and what whoever comes through it may do.

    owner of the service, root     read and write
    members of the socket's group  read
    others                         nothing; the mode of the socket keeps them out already

The keeper opens it and control inherits it, so a client that comes while control is being started again waits, and is
served.  A socket that a killed service left behind is taken away; one that somebody listens on is not.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import socket
import stat
import struct
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from ..clients.errors import ZonetrackError

PATH_BYTES_MAX = 107
"""A sockaddr_un has 108 bytes for the path, the last of which is 0 (unix(7))."""
BACKLOG = 1024
"""Clients that wait to be let in: who comes when it is full is refused by the kernel, or waits, as he likes."""
MODE = 0o600
GROUP_MODE = 0o660
SO_PEERGROUPS = 59  # socket(7): supplementary groups of the peer, since Linux 4.13
GROUPS_MAX = 256
"""Of a peer, that Python can be told of; whoever has more is known by its primary group only."""
_CREDENTIALS = struct.Struct("3i")


class DoorError(ZonetrackError):
    """The control socket cannot stand there; says why."""


class Rights(IntEnum):
    """What a client may do; each includes those before it."""

    NONE = 0
    READ = 1
    WRITE = 2


class Peer(NamedTuple):
    """A client as the kernel knows it from the moment when it connected."""

    pid: int
    uid: int
    groups: frozenset[int]


def peer_of(connection: socket.socket) -> Peer:
    """Return who is at the other end of a connection (SO_PEERCRED and SO_PEERGROUPS, unix(7))."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(credentials)
    groups = {gid}
    with contextlib.suppress(OSError):  # more groups than fit
        found = connection.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, 4 * GROUPS_MAX)
        groups.update(struct.unpack(f"{len(found) // 4}I", found))
    return Peer(pid, uid, frozenset(groups))


@dataclass
class Door:
    """A socket that listens, and whose it is."""

    path: str
    listener: socket.socket
    owner: int
    group: int | None
    identity: tuple[int, int] | None

    def rights(self, peer: Peer) -> Rights:
        """Return what a client may do."""
        if peer.uid in (0, self.owner):
            return Rights.WRITE
        if self.group is not None and self.group in peer.groups:
            return Rights.READ
        return Rights.NONE

    def leave(self) -> None:
        """Let go of it in this process alone; others listen."""
        self.listener.close()

    def close(self) -> None:
        """Listen no more, and take the socket away if it is still ours."""
        self.listener.close()
        if _identity(self.path) == self.identity:
            Path(self.path).unlink(missing_ok=True)


def _identity(path: str) -> tuple[int, int] | None:
    """Return what tells the file at a path from any other, None when there is none."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def open_door(path: str, group: str | None = None) -> Door:
    """Listen on a path.

    Args:
        path: of the socket; missing directories are made.
        group: whose members may read, None for nobody.

    Raises:
        DoorError: the path is too long, somebody listens there, what is there is no socket, or there is no such group.
    """
    length = len(os.fsencode(path))
    if length > PATH_BYTES_MAX:
        raise DoorError(f"{path}: the path of a socket has {PATH_BYTES_MAX} bytes at most, this one {length}")
    gid = None if group is None else _gid(group)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        _make_directory(Path(path).parent, gid)
        _bind(listener, path, MODE if gid is None else GROUP_MODE)
        if gid is not None:
            os.chown(path, -1, gid, follow_symlinks=False)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise DoorError(f"{path}: {error.strerror}") from error
    except DoorError:
        listener.close()
        raise
    return Door(path, listener, os.geteuid(), gid, _identity(path))


def resume(path: str, descriptor: int, group: str | None = None) -> Door:
    """Go on listening on a path, with a socket that another process of this service opened there.

    Args:
        path: of the socket.
        descriptor: of the socket; it belongs to the door from now on.
        group: whose members may read, None for nobody.

    Raises:
        DoorError: somebody has put another file there, or there is no such group.
    """
    gid = None if group is None else _gid(group)
    listener = socket.socket(fileno=descriptor)
    if listener.getsockname() != path or _identity(path) is None:
        listener.close()
        raise DoorError(f"{path}: the socket that was left is not there any more")
    listener.setblocking(False)
    listener.listen(BACKLOG)  # clients see from now on that they speak to this process's
    return Door(path, listener, os.geteuid(), gid, _identity(path))


def shut(descriptor: int | None) -> None:
    """Listen no more with a socket whose descriptor others may have too: from now on nobody does."""
    if descriptor is not None:
        with socket.socket(fileno=os.dup(descriptor)) as listener, contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


def _gid(group: str) -> int:
    try:
        return int(group) if group.isdecimal() else grp.getgrnam(group).gr_gid
    except KeyError:
        raise DoorError(f"there is no group {group!r} to which the control socket could belong") from None


def _make_directory(directory: Path, gid: int | None) -> None:
    """Make the directory of a socket if it is missing, and see that nobody else can change what stands there.

    Raises:
        DoorError: others may write to it, so that they could put another socket in our place.
    """
    if not directory.exists():
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory.mkdir(mode=0o700)
        if gid is not None:
            os.chown(directory, -1, gid)
            directory.chmod(0o710)
    status = directory.stat()
    others = stat.S_IWOTH | (stat.S_IWGRP if status.st_gid != os.getegid() else 0)
    is_open = status.st_mode & others and not status.st_mode & stat.S_ISVTX
    if is_open or status.st_uid not in (0, os.geteuid()):
        raise DoorError(
            f"{directory}: others than user {os.geteuid()} could replace the socket in it: chmod go-w, or name another"
        )


def _bind(listener: socket.socket, path: str, mode: int) -> None:
    """Give a socket its path, and take away what a dead service left there."""
    os.fchmod(listener.fileno(), mode)  # what it has from its first moment there on, less the umask
    for _ in range(2):
        before = os.umask(0o777 & ~mode)
        try:
            listener.bind(path)
            return
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        finally:
            os.umask(before)
        _take_away(path)
    raise DoorError(f"{path}: somebody else makes a socket there")


def _take_away(path: str) -> None:
    """Unlink a socket on which nobody listens.

    Raises:
        DoorError: somebody does, or it is no socket.
    """
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise DoorError(f"{path} is there, and is no socket; it is left alone")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink(missing_ok=True)
        except FileNotFoundError:
            return
        else:
            raise DoorError(f"{path}: process {peer_of(probe).pid} listens there already")
