"""Ends what other threads wait for: Ctrl-C reaches the main thread alone."""

from __future__ import annotations

import threading


class HaltedError(BaseException):
    """What this thread does is not wanted any more.

    No exception of a failure: nobody who copes with those may swallow it.
    """


class Halt:
    """Set by one thread, and seen by all others where they wait."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """Have the others end what they do."""
        self._event.set()

    def check(self) -> None:
        """Go on, if nobody has asked to end.

        Raises:
            HaltedError: Somebody has.
        """
        if self._event.is_set():
            raise HaltedError
