"""State of a program that it keeps in Python, or that its module has."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from one_run import check_one

import distbench
from distbench.verdict import describe_verdict
from distbench.worker.subjects.between import Between

pytestmark = pytest.mark.cluster

_PROGRAMS = Path(__file__).with_name("kept_programs.py")
LONG = pytest.mark.nightly  # what it shows is shown by a shorter test as well


class Holder:
    """An object of the user's."""

    def __init__(self, **held):
        vars(self).update(held)


class Counting(tf.Module):
    """A program may be a module."""

    def __init__(self):
        super().__init__(name="counting")
        self.taken = tf.constant(0)
        self.last = Seen(step=-1)


TAKEN = 0
LEFT: list[int] = []
FIXED = np.frombuffer(b"12345678", np.int64)


def count_in_module() -> int:
    global TAKEN  # as users do
    TAKEN += 1
    LEFT.append(TAKEN)
    return len(LEFT)


class ByClass:
    """Counts in a class, in what functions close over, and in a module."""

    count = 0

    def __init__(self) -> None:
        made = 0

        def make() -> int:
            nonlocal made
            made += 1
            return made

        self.make = make

    def step(self) -> tuple[int, int, int]:
        kind = type(self)
        kind.count += 1
        kind.made = getattr(kind, "made", 0) + 1
        assert kind.made == kind.count
        return kind.count, self.make(), self.count_all()

    @classmethod
    def count_all(cls) -> int:
        assert not FIXED.flags.writeable
        return count_in_module()


@dataclass(frozen=True)
class Seen:
    """Replaced, and never changed."""

    step: int


@pytest.mark.parametrize("name", ["Centred", "Drawing"])
def test_it_is_right(name: str) -> None:
    run = check_one(f"{_PROGRAMS}:{name}")
    assert run.status == "pass", run


@pytest.mark.nightly
def test_steps_that_are_run_again_do_not_wait_for_longer() -> None:
    run = check_one(f"{_PROGRAMS}:Plateau")
    assert run.status == "pass", run
    assert "'rate' first changes in step 5, so 8 steps were taken" in run.message


@pytest.mark.parametrize("tier", [pytest.param("bounded", marks=LONG), "free"])
def test_each_task_keeps_its_own(tier: str) -> None:
    verdict = distbench.check(f"{_PROGRAMS}:Plateau", "mwms:2", tier=tier)
    assert verdict.status == "pass", describe_verdict(verdict)


@pytest.mark.parametrize(
    ("name", "variable"), [("PlateauOfOne", "last"), ("CentredByOne", "mean")]
)
def test_it_is_wrong(name: str, variable: str) -> None:
    run = check_one(f"{_PROGRAMS}:{name}")
    first = run.findings[0]
    assert (first.code, first.variable) == ("statistics-not-synchronized", variable)


def test_a_table_is_state_as_well() -> None:
    """Of a process, so that replicas of one would look up what others have inserted."""
    (run,) = distbench.check(f"{_PROGRAMS}:Tabled", "mwms:2").runs
    assert (run.status, run.message) == ("pass", "")


@LONG
def test_what_a_table_leads_hides_no_mistake() -> None:
    (run,) = distbench.check(f"{_PROGRAMS}:TabledOwnMean", "mwms:2").runs
    assert run.findings[0].code == "loss-not-scaled"


def test_what_a_python_function_keeps_is_state_as_well() -> None:
    (right,) = distbench.check(f"{_PROGRAMS}:Levelled", "mwms:2").runs
    assert (right.status, right.message) == ("pass", "")
    (own,) = distbench.check(f"{_PROGRAMS}:LevelledByOwn", "mwms:2").runs
    assert own.findings[0].code == "replicas-diverged"


def test_a_step_that_is_run_again_has_what_it_had() -> None:
    inner = Holder(in_step=0, best=9.0, seen=deque([1], maxlen=3), parts={"a": {2}})
    shared = inner.seen
    chance = [np.random.default_rng(1), random.Random(1)]
    root = Holder(inner=[inner, object()], few=np.zeros(2), text=None, chance=chance)
    between = Between(root)

    def run(step: int) -> tuple[object, ...]:
        with between.begin(step):
            inner.best -= 1
            inner.seen.append(step)
            inner.parts["a"].add(10 + step)
            root.few[step] += 1
            root.text = f"{root.text}{step}"
            drawn.append([generator.random() for generator in chance])
        inner.in_step = inner.in_step + 1
        return inner.best, [*inner.seen], inner.parts["a"], [*root.few], root.text

    drawn: list[list[float]] = []
    between.turn_to("bounded", anew=True)
    first = [run(0), run(0), run(1)]
    assert first[0] == (8.0, [1, 0], {2, 10}, [1, 0], "None0")
    assert first[1] == first[0]
    assert inner.in_step == 2  # the steps themselves change it as well
    assert first[2] == (7.0, [1, 0, 1], {2, 10, 11}, [1, 1], "None01")
    assert inner.seen is shared
    assert drawn[0] == drawn[1] != drawn[2]
    # A tier goes on from its own steps, and leaves those of the others.
    between.turn_to("free", anew=True)
    assert run(0) == first[0]
    inner.best = 100.0  # as the step itself leaves it
    assert run(1)[0] == 99.0
    between.turn_to("bounded")
    assert [run(1), run(0)] == [first[2], first[0]]
    between.turn_to("free")
    assert [run(1)[0], run(0)] == [99.0, first[0]]


def test_modules_tensors_and_new_names_are_put_back() -> None:
    program = Counting()
    program.system = random.SystemRandom()
    program.old = np.random.RandomState(1)
    between = Between(program)

    def run(step: int) -> tuple[object, ...]:
        with between.begin(step):
            program.taken = program.taken + 1
            program.last = Seen(step)
            program.made = getattr(program, "made", 0) + 1
        return int(program.taken), program.last, program.made, program.old.rand()

    first = [run(step) for step in range(3)]
    assert [taken for taken, *_ in first] == [1, 2, 3]
    assert [run(step) for step in range(3)] == first


def test_names_that_begin_as_those_of_tensorflow_are_put_back() -> None:
    program = Counting()
    program._names_seen, program._self_distilled = 0, 0
    between = Between(program)

    def run() -> tuple[int, int]:
        with between.begin(0):
            program._names_seen += 1
            program._self_distilled += 1
        return program._names_seen, program._self_distilled

    assert [run(), run()] == [(1, 1), (1, 1)]
    assert program.name == "counting"


def test_what_is_no_plain_value_is_left_as_it_is() -> None:
    module = tf.Module()
    module.built = False
    root = Holder(model=None, data=np.zeros(10_000), text="a", module=module)
    between = Between(root)
    with between.begin(0):
        root.model, root.text, module.built = object(), "b", True
        root.data[0] = 1.0
    model = root.model
    with between.begin(0):
        assert (root.model, root.text, root.data[0]) == (model, "a", 1.0)
        assert module.built


def test_what_code_keeps_is_put_back() -> None:
    program = ByClass()
    between = Between(program)

    def run(step: int) -> tuple[int, ...]:
        with between.begin(step):
            return program.step()

    first = [run(step) for step in range(3)]
    assert first == [(1, 1, 1), (2, 2, 2), (3, 3, 3)]
    assert [run(step) for step in (0, 2, 1)] == [first[0], first[2], first[1]]
