"""Syncs of a real process that fail, or do not return, when a test says so.

The process is started through a filter of system calls (seccomp), which asks this module about each of its ``fsync``
and ``fdatasync``: they go on to the kernel, at once or later, or fail with ``EIO`` without having been tried. No
privilege is needed, and nothing in the process knows of it: it may use libc or not.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import select
import socket
import struct
import sys
import threading
from pathlib import Path
from typing import Self

#: What the machine calls itself in a filter, and the numbers of ``fsync``, ``fdatasync`` and ``seccomp``.
_MACHINES = {"x86_64": (0xC000003E, 74, 75, 317), "aarch64": (0xC00000B7, 82, 83, 277)}

_PR_SET_NO_NEW_PRIVS = 38
_SET_MODE_FILTER, _FLAG_NEW_LISTENER = 1, 8
_ASK, _ALLOW = 0x7FC00000, 0x7FFF0000
#: Of the classic packet filter: load a word of what is known of the call, jump if equal, return.
_LOAD, _JUMP_IF, _RETURN = 0x20, 0x15, 0x06
_NUMBER, _ARCHITECTURE = 0, 4
#: ``struct seccomp_notif`` and ``struct seccomp_notif_resp``, and what they are exchanged by.
_QUESTION_BYTES, _ANSWER = 80, struct.Struct("<QqiI")
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_CONTINUE = 1


class FailingSyncs:
    """Decides about the syncs of a process that is started by the command :attr:`within`.

    with FailingSyncs(tmp_path / "syncs") as syncs:
        process = subprocess.Popen([*syncs.within, "sbp", "serve"])
        syncs.failing = True

    While :attr:`passing` is cleared, the next one waits until it is set.
    """

    def __init__(self, path: Path) -> None:
        #: Whether they fail from now on.
        self.failing = False
        #: How many have failed.
        self.failed = 0
        #: Cleared, syncs wait until it is set.
        self.passing = threading.Event()
        self.passing.set()
        #: Set when one has begun to wait.
        self.waits = threading.Event()
        self.within = (sys.executable, __file__, str(path))
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._listening.listen()
        self._thread = threading.Thread(target=self._decide)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """The process has ended by now."""
        self.passing.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()

    def _decide(self) -> None:
        try:
            connection, _ = self._listening.accept()
        except OSError:
            return  # nothing was started
        with connection:
            _, (listener,), _, _ = socket.recv_fds(connection, 1, 1)
        questions = select.poll()
        questions.register(listener, select.POLLIN)
        try:
            while questions.poll()[0][1] & select.POLLIN:
                self._answer(listener)
        finally:
            os.close(listener)

    def _answer(self, listener: int) -> None:
        question = bytearray(_QUESTION_BYTES)
        try:
            fcntl.ioctl(listener, _RECEIVE, question)
            (call,) = struct.unpack_from("<Q", question)
            if not self.passing.is_set():
                self.waits.set()
                self.passing.wait()
            failing = self.failing
            answer = _ANSWER.pack(call, 0, -errno.EIO, 0) if failing else _ANSWER.pack(call, 0, 0, _CONTINUE)
            # Counted first: whoever hears of the failure may look at once.
            self.failed += failing
            fcntl.ioctl(listener, _SEND, bytearray(answer))
        except FileNotFoundError:
            pass  # its thread was killed meanwhile


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)


def _run(path: str, command: list[str]) -> None:
    """Becomes the command, with the filter."""
    architecture, fsync, fdatasync, seccomp = _MACHINES[platform.machine()]
    rules = (
        _instruction(_LOAD, _ARCHITECTURE),
        _instruction(_JUMP_IF, architecture, if_false=4),
        _instruction(_LOAD, _NUMBER),
        _instruction(_JUMP_IF, fsync, if_true=1),
        _instruction(_JUMP_IF, fdatasync, if_false=1),
        _instruction(_RETURN, _ASK),
        _instruction(_RETURN, _ALLOW),
    )
    code = ctypes.create_string_buffer(b"".join(rules))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(rules), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS)")
        listener = libc.syscall(
            ctypes.c_long(seccomp),
            ctypes.c_ulong(_SET_MODE_FILTER),
            ctypes.c_ulong(_FLAG_NEW_LISTENER),
            ctypes.byref(program),
        )
        if listener < 0:
            raise OSError(ctypes.get_errno(), "seccomp(SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER)")
        socket.send_fds(connection, [b"f"], [listener])
        os.close(listener)
    os.execvp(command[0], command)


if __name__ == "__main__":
    _run(sys.argv[1], sys.argv[2:])
