"""Lends the bench's terminal to a task: lines to it, text from it.

A task's own input is empty and its output goes to its log, so a debugger in it talks
over a Unix socket in the run's private folder.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TextIO

_CHUNK_BYTES = 1 << 12
_ADDRESS_BYTES = 100
"""What a Unix socket's address holds everywhere: 107 bytes on Linux, 103 on macOS."""
_POLL_S = 0.2


@contextlib.contextmanager
def shorten(address: Path) -> Iterator[str]:
    """A path to a socket that its address can hold, however deep its folder is."""
    if (
        len(os.fsencode(address)) <= _ADDRESS_BYTES
        or not Path("/proc/self/fd").exists()
    ):
        yield str(address)
        return
    folder = os.open(address.parent, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{folder}/{address.name}"
    finally:
        os.close(folder)


class Terminal:
    """Connects whoever calls at a socket with a terminal, one after the other.

    Args:
        address: Where the socket is made; its folder keeps strangers out.
        source: Where lines are typed; its end is told as the end of the input.
        sink: Where the text of the task goes.
    """

    def __init__(self, address: Path, source: TextIO, sink: TextIO) -> None:
        self.address = address
        if isinstance(source, io.TextIOWrapper):
            # One byte that is no letter must not end what is typed.
            source.reconfigure(errors="replace")
        self._source = source
        self._sink = sink
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with shorten(address) as path:
            self._listener.bind(path)
        self._listener.listen()
        self._listener.settimeout(_POLL_S)
        self._caller: socket.socket | None = None
        self._ready = threading.Condition()
        self._closed = False
        self._unread: OSError | None = None

    def __enter__(self) -> Terminal:
        # Reading a terminal cannot be interrupted: that thread ends with the process.
        for work in (self._listen, self._type):
            threading.Thread(target=work, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._ready:
            self._closed = True
            self._ready.notify_all()
        self._listener.close()

    def check_sink(self) -> None:
        """Raise what the sink did, where it took no more: nobody reads on, say."""
        if self._unread is not None:
            raise self._unread

    def _listen(self) -> None:
        while not self._closed:
            try:
                caller, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            with caller:
                self._call(caller)
                self._show(caller)
                self._call(None)

    def _call(self, caller: socket.socket | None) -> None:
        with self._ready:
            self._caller = caller
            self._ready.notify_all()

    def _show(self, caller: socket.socket) -> None:
        caller.settimeout(None)
        # A chunk may end amid a letter.
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        with contextlib.suppress(OSError):
            while chunk := caller.recv(_CHUNK_BYTES):
                try:
                    self._sink.write(decoder.decode(chunk))
                    self._sink.flush()
                except OSError as error:
                    # Who wrote it fails next, at a socket that is no fault of its own.
                    self._unread = error
                    return

    def _type(self) -> None:
        for line in self._source:
            if (caller := self._wait_caller()) is None:
                return
            with contextlib.suppress(OSError):
                caller.sendall(line.encode("utf-8", "replace"))
        if (caller := self._wait_caller()) is not None:
            with contextlib.suppress(OSError):
                caller.shutdown(socket.SHUT_WR)

    def _wait_caller(self) -> socket.socket | None:
        """Who listens now; None once the terminal is closed."""
        with self._ready:
            self._ready.wait_for(lambda: self._closed or self._caller is not None)
            return self._caller
