"""A real child process that runs a function, says something, waits to be told, and can be killed at a known point."""

import os
import pickle
import signal
import traceback


class Child:
    """A forked child running ``function(child)``; the parent hears what it says and tells it to go on.

    No call here waits for time to pass: all wait for the other end of a pipe, or for the child's end.
    """

    def __init__(self, function):
        from_child, to_parent = os.pipe()
        from_parent, to_child = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self._reader, self._writer = from_parent, to_parent
            os.close(from_child)
            os.close(to_child)
            code = 1
            try:
                function(self)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        self._reader, self._writer = from_child, to_child
        os.close(to_parent)
        os.close(from_parent)
        self.status = None

    def say(self, value):
        """Send a value to the other side."""
        data = pickle.dumps(value)
        os.write(self._writer, len(data).to_bytes(4, "little") + data)

    def hear(self):
        """Wait for a value from the other side; EOFError when it has died."""
        return pickle.loads(self._read(int.from_bytes(self._read(4), "little")))

    def _read(self, size):
        data = b""
        while len(data) < size:
            part = os.read(self._reader, size - len(data))
            if not part:
                raise EOFError(f"child {self.pid} has gone")
            data += part
        return data

    def wait(self):
        """Wait for the child's end; return its exit code, negative for a signal."""
        if self.status is None:
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            os.close(self._reader)
            os.close(self._writer)
        return self.status

    def kill(self):
        """Kill the child where it stands, and wait until it is dead."""
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
        return self.wait()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.kill()
