"""What travels by value keeps the place of its code."""

from __future__ import annotations

import inspect
import pickle

from distbench.pickling import pickle_by_value


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
