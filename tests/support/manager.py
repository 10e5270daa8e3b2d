"""A stand-in of systemd: its notify socket, the descriptors that it keeps, and how it hands them to whoever it starts next.

python manager.py NUMBER:NAME ... -- COMMAND ...     be COMMAND, with those descriptors as sd_listen_fds(3) has them
"""

import fcntl
import os
import queue
import socket
import sys
import threading

FIRST = 3
APART = 300
PATIENCE_S = 300


class Manager:
    """The socket of a unit, and its file descriptor store."""

    def __init__(self, directory):
        self.path = str(directory / "notify")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self.kept = {}
        """Number of each descriptor, by name."""
        self._told = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        """Take what it is told, always: who tells it waits while it does not."""
        while True:
            text, numbers, _, _ = socket.recv_fds(self._socket, 1 << 16, 1)
            told = dict(line.split("=", 1) for line in text.decode().splitlines())
            if "FDSTORE" in told:
                self._drop(told["FDNAME"])
                (self.kept[told["FDNAME"]],) = numbers
            if "FDSTOREREMOVE" in told:
                self._drop(told["FDNAME"])
            self._told.put(told)
            if not told:
                return

    def until(self, word):
        """Wait until it was told something with ``word``."""
        while word not in self._told.get(timeout=PATIENCE_S):
            pass

    def _drop(self, name):
        if name in self.kept:
            os.close(self.kept.pop(name))

    def hand_over(self):
        """Return the beginning of a command line which gives what is kept to the rest of it, and the descriptors."""
        words = [f"{number}:{name}" for name, number in self.kept.items()]
        return [sys.executable, __file__, *words, "--"], tuple(self.kept.values())

    def close(self):
        """Let go of everything."""
        self._socket.shutdown(socket.SHUT_RDWR)  # the reader is told nothing, and ends
        self._reader.join()
        for name in list(self.kept):
            self._drop(name)
        self._socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()


def main(words):
    """Be the command."""
    end = words.index("--")
    given = [word.split(":", 1) for word in words[:end]]
    apart = [fcntl.fcntl(int(number), fcntl.F_DUPFD, APART) for number, _ in given]
    for i, number in enumerate(apart):
        os.dup2(number, FIRST + i, inheritable=True)
        os.close(number)
    more = {
        "LISTEN_PID": str(os.getpid()),
        "LISTEN_FDS": str(len(given)),
        "LISTEN_FDNAMES": ":".join(name for _, name in given),
    }
    os.closerange(FIRST + len(given), APART)
    os.execve(words[end + 1], words[end + 1 :], os.environ | more)


if __name__ == "__main__":
    main(sys.argv[1:])
