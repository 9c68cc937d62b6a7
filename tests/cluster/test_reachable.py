"""What an object holds is found, and asking for it ends."""

from __future__ import annotations

import functools
import itertools
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import tensorflow as tf

from distbench.worker.state.places import name_nameless
from distbench.worker.state.reachable import walk, walk_variables

pytestmark = pytest.mark.cluster


class Slotted:
    """Its attributes stand in slots, one of them under a name of the class' own."""

    __slots__ = ("__hidden", "open", "unset")

    def __init__(self, hidden, shown):
        self.__hidden, self.open = hidden, shown

    def read(self):
        return self.__hidden


class AnswersAll:
    """A stand-in for what lies elsewhere: whatever it is asked for, it has."""

    __slots__ = ("unset",)

    def __getattr__(self, name):
        return AnswersAll()


class MakesAnew:
    """Its attributes are made as they are asked for: none of them stays."""

    @property
    def __dict__(self):
        return {"held": SimpleNamespace(number=object())}


class _Reader:
    def __init__(self, variable):
        self._variable = variable

    def read(self):
        return self._variable


def _make_reader(variable):
    return tf.function(lambda: variable + 1.0)


def test_every_kind_of_holder_is_looked_into() -> None:
    made = [tf.Variable(float(n)) for n in range(6)]
    root = {
        "slots": Slotted(made[0], made[1]),
        "function": _make_reader(made[2]),
        "partial": functools.partial(max, made[3]),
        "closure": lambda: made[4],
        "method": _Reader(made[5]).read,
    }
    found = [variable.ref() for variable in walk_variables(root)]
    assert len(found) == len(made)
    assert set(found) == {variable.ref() for variable in made}


@pytest.mark.parametrize("make", [AnswersAll, MagicMock, MakesAnew])
def test_what_answers_everything_is_left(make) -> None:
    variable = tf.Variable(1.0)
    root = SimpleNamespace(other=make(), variable=variable)
    assert list(itertools.islice(walk_variables(root), 9)) == [variable]
    assert name_nameless(root) == {id(variable): "variable"}


def test_what_is_made_anew_each_time_is_seen_each_time() -> None:
    """A later object often gets the address of one that is let go."""

    def list_children(item: object) -> list[object]:
        made = [[item[0] + 1]] if isinstance(item, list) and item[0] < 9 else []
        return [*made, 0.0]

    numbers = [item[0] for item in walk([0], list_children)]
    assert numbers == list(range(10))
