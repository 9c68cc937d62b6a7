"""How long jobs may take together, where tasks compute and where they stand still."""

from __future__ import annotations

import pytest
from scripted_group import Maker, ScriptedProcess, tick

from distbench.launch.deadline import Deadline, Turn
from distbench.launch.failure import TaskFailedError
from distbench.launch.watch import Look


@pytest.mark.parametrize(
    ("stretches", "excused"),
    [
        ([], 0.0),
        ([(2.0, 3.0), (5.0, 7.0)], 3.0),
        ([(2.0, 5.0), (3.0, 6.0)], 4.0),  # two groups at once
        ([(2.0, 5.0), (2.0, 5.0)], 3.0),  # the same look
        ([(-9.0, 2.0)], 2.0),  # before it began
        ([(0.0, 90.0)], 20.0),
    ],
)
def test_time_in_which_tasks_compute_counts_once_and_has_an_end(
    stretches: list[tuple[float, float]], excused: float
) -> None:
    deadline = Deadline(10.0, patience=3.0, clock=lambda: 0.0)
    for since, until in stretches:
        deadline.excuse(since, until)
    assert deadline.allowed_s == 10.0 + excused


def test_without_patience_nothing_is_excused() -> None:
    deadline = Deadline(10.0, clock=lambda: 0.0)
    deadline.excuse(0.0, 5.0)
    assert deadline.allowed_s == deadline.left_s == 10.0


@pytest.mark.parametrize(
    ("share", "least", "most", "words"),
    [
        (0.5, 60.0, 65.0, r"deadline of 20 s, besides \d+(\.\d+)? s in which tasks"),
        (0.01, 20.0, 24.0, r"deadline of 20 s, of which 19.9 s were left"),
    ],
    ids=["computes", "stands-still"],
)
def test_a_task_that_computes_is_waited_for(
    make_scripted: Maker, share: float, least: float, most: float, words: str
) -> None:
    clock = tick(0.1)

    def look(_: int) -> Look:
        return Look(stopped=False, memory_bytes=0, computed_s=share * clock())

    group = make_scripted(
        ScriptedProcess(None, pid=1), watch={"look": look}, clock=clock
    )
    began, deadline = clock(), Deadline(20.0, patience=3.0, clock=clock)
    with pytest.raises(TaskFailedError, match=words) as caught:
        group.call("train", {}, deadline=deadline)
    assert caught.value.kind == "timeout"
    assert least <= clock() - began <= most


@pytest.mark.parametrize(
    ("spent", "left"), [(12.152, "7.8 s"), (19.054, "0.95 s"), (0.152, "19.8 s")]
)
def test_what_was_left_is_told_to_a_tenth(spent: float, left: str) -> None:
    times = iter([0.0, *[spent] * 9])
    turn = Turn(Deadline(20.0, clock=lambda: next(times)))
    assert str(turn) == f"20 s, of which {left} were left for it"
