"""Locks that a fork of this process finds free, whoever holds them here."""

from __future__ import annotations

import os
import threading
from collections.abc import Hashable


class Locks:
    """A lock for each key, for the threads of one process. Made once, for a module.

    A fork has no copy of the thread that holds a lock in its parent, and would wait for
    it for ever: there all are new.
    """

    def __init__(self) -> None:
        self._locks: dict[Hashable, threading.Lock] = {}
        os.register_at_fork(after_in_child=self._locks.clear)

    def of(self, key: Hashable) -> threading.Lock:
        """The lock of a key; hold it by `with`."""
        return self._locks.setdefault(key, threading.Lock())
