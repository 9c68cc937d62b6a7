"""State that a restore left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from simulated_rule import Rule, State
from training_simulator import HEAD, TRAINED, Fault, observe

from distbench.diagnose.judge import judge
from distbench.verdict import Finding

SLOTS = tuple(f"momentum/{path}" for path in TRAINED)


def lose(*paths: str) -> Callable[[State, int], State]:
    """Other values than what was saved, on all replicas."""
    return lambda state, r: {k: v + (k in paths) for k, v in state.items()}


def find_lost(start: Callable[[State, int], State]) -> tuple[Finding, ...]:
    evidence = observe(Fault(start=start), replicas=3, rule=Rule(name="momentum"))
    subject = replace(evidence.subject, restored=True)
    return judge(replace(evidence, subject=subject)).findings


@pytest.mark.parametrize(
    ("paths", "phase", "words"),
    [
        (SLOTS, "slot", "it is not what was saved ("),
        ((*SLOTS, "iterations"), "slot", ", nor is iterations of 'iterations' ("),
        (("iterations",), "iterations", "it is not what was saved ("),
        (
            (*SLOTS, HEAD, "iterations"),
            "slot",
            f", nor is variable of '{HEAD}', nor is iterations of 'iterations' (",
        ),
    ],
    ids=["slots", "slots-and-counter", "counter", "everything"],
)
def test_what_one_restore_left_out_is_one_loss(
    paths: tuple[str, ...], phase: str, words: str
) -> None:
    (only,) = find_lost(lose(*paths))
    assert (only.code, only.phase, only.step) == ("state-not-restored", phase, -1)
    assert set(only.variables) == set(paths)
    assert words in only.explanation


def test_what_other_replicas_lost_is_told_apart() -> None:
    def start(state: State, r: int) -> State:
        return lose(*SLOTS)(state, r) if r == 1 else lose("iterations")(state, r)

    first, second = find_lost(start)
    assert (first.phase, first.replicas) == ("slot", (1,))
    assert (second.phase, second.replicas) == ("iterations", (0, 2))
