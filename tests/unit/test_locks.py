"""Who forks while another thread holds a lock does not wait for that thread."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable

import pytest

from distbench import pickling
from distbench.checking import controls
from distbench.launch import servers
from distbench.locks import Locks


def fork_and_ask(ask: Callable[[], object]) -> int:
    """How a fork of this process ends that asks for something: 0 where it gets it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # pytest may have threads
        pid = os.fork()
    if pid == 0:
        signal.alarm(5)
        try:
            ask()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1]


def test_each_key_has_a_lock_of_its_own() -> None:
    locks = Locks()
    assert locks.of("a") is locks.of("a")
    with locks.of("a"):
        assert not locks.of("a").acquire(blocking=False)
        assert locks.of("b").acquire(blocking=False)


@pytest.mark.parametrize(
    ("locks", "key"),
    [
        pytest.param(pickling._LOCKS, "cloudpickle", id="pickles"),
        pytest.param(servers._LOCKS, "servers", id="fork-servers"),
        pytest.param(controls._LOCKS, ("a control",), id="controls"),
    ],
)
def test_a_fork_waits_for_no_thread_that_it_lacks(locks: Locks, key: object) -> None:
    with locks.of(key):
        assert fork_and_ask(lambda: locks.of(key).acquire()) == 0


def test_a_fork_pickles_while_its_parent_does() -> None:
    class Sent:
        pass

    with pickling._LOCKS.of("cloudpickle"):
        assert fork_and_ask(lambda: pickling.pickle_by_value(Sent, "Sent")) == 0
