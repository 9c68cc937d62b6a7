"""What travels by value keeps the place of its code."""

from __future__ import annotations

import inspect
import linecache
import pickle
import site
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import Enum
from typing import Any

import cloudpickle
import pytest

from distbench import pickling
from distbench.pickling import is_cell, is_installed, pickle_by_value


def test_functions_within_functions_keep_their_file() -> None:
    def add(x: int) -> object:
        def adds(y: int) -> int:
            return x + y

        return adds

    arrived = pickle.loads(pickle_by_value(add, "add"))
    assert arrived is not add
    for function in (arrived, arrived(1)):
        assert function.__code__.co_filename == __file__
    assert arrived(1)(2) == 3
    # What AutoGraph reads.
    assert inspect.getsource(arrived) == inspect.getsource(add)


def test_methods_of_a_local_class_keep_their_file() -> None:
    class Rule:
        def apply(self) -> int:
            return 7

    arrived = pickle.loads(pickle_by_value(Rule, "Rule"))
    assert arrived.apply.__code__.co_filename == __file__
    assert arrived().apply() == 7


@pytest.mark.parametrize("cell", ["<ipython-input-1-abc>", "/tmp/ipykernel_0/1.py"])
def test_functions_of_a_notebook_bring_their_lines(
    cell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What AutoGraph reads; a task has no such file, nor what IPython keeps of it."""
    text = "def double(x):\n    return 2 * x\n"
    found: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, cell, "exec"), found)
    monkeypatch.setitem(
        linecache.cache, cell, (len(text), None, text.splitlines(True), cell)
    )
    data = pickle_by_value(found["double"], "double")
    del linecache.cache[cell]
    assert not is_cell(cell)
    monkeypatch.setattr(pickling, "_CELLS", set())
    arrived = pickle.loads(data)
    assert arrived(3) == 6
    assert inspect.getsource(arrived) == text
    assert is_cell(cell)


def test_lines_of_a_file_stay_where_they_are() -> None:
    linecache.getlines(__file__)
    data = pickle_by_value(lambda: 7, "seven")
    assert b"test_lines_of_a_file_stay_where_they_are() ->" not in data
    pickle.loads(data)
    assert not is_cell(__file__)


@pytest.mark.parametrize(
    "folder", [*site.getsitepackages(), site.getusersitepackages()]
)
def test_packages_are_no_code_of_the_users(folder: str) -> None:
    assert is_installed(f"{folder}/package/module.py")


class Slow:
    """Another thread comes to it while it is pickled."""

    def __init__(self) -> None:
        self.turns = threading.Barrier(2)

    def __reduce__(self) -> tuple[Any, ...]:
        with suppress(threading.BrokenBarrierError):
            self.turns.wait(0.1)
        return str, ("arrived",)


class Setting(Enum):
    """What a function and its arguments may both refer to."""

    SLOW = 1


def get_slow() -> Setting:
    return Setting.SLOW


def test_what_travels_together_is_of_the_same_classes() -> None:
    data = pickle_by_value(get_slow, "get_slow", (Setting.SLOW,))
    function, (given,) = pickle.loads(data)
    assert function is not get_slow
    assert function() is given


def test_threads_may_pickle_at_the_same_time() -> None:
    """cloudpickle's list of modules is one for all: who ended first emptied it."""
    slow = Slow()
    with ThreadPoolExecutor(2) as threads:
        sent = threads.map(pickle_by_value, (slow, slow), ("first", "second"))
        assert [pickle.loads(data) for data in sent] == ["arrived", "arrived"]


def test_what_the_user_has_registered_stays_so() -> None:
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    try:
        pickle_by_value(Slow, "Slow")
        assert __name__ in cloudpickle.list_registry_pickle_by_value()
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    pickle_by_value(Slow, "Slow")
    assert __name__ not in cloudpickle.list_registry_pickle_by_value()
