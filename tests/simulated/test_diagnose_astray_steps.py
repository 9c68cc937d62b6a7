"""What a wrong step is called that somebody has looked inside of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from inside_runs import Program
from training_simulator import HEAD, Fault, observe

from distbench.diagnose.judge import judge
from distbench.evidence import Inside
from distbench.verdict import Finding

Array = np.ndarray


def find(inside: Inside | None) -> Finding:
    """The finding of replicas whose step turns one variable another way."""

    def turn(new: Any, old: Any, gradients: Any, run: Any) -> Any:
        moved = new[HEAD] - old[HEAD]
        return {**new, HEAD: old[HEAD] + np.sin(7 * moved[::-1])}

    (finding,) = judge(replace(observe(Fault(update=turn)), inside=inside)).findings
    return finding


def look(made: Callable[[Array], Any], *, joined: bool = False) -> Inside:
    """What a step shows that is moved by something of the examples.

    Args:
        made: What each replica makes of its own ones.
        joined: Whether that is added up over the replicas, beside a number.
    """
    program = Program()
    program.give()
    program.compute("middle", "Sum", ["rows"], lambda v: np.float32(made(v)))
    program.read("one", 1.0, 1.0)
    name = program.compute("more", "AddV2", ["middle", "one"], np.add)
    if joined:

        def add_up(parts: Sequence[Any]) -> list[Any]:
            return [sum(parts)] * len(parts)

        name = program.exchange("all", "more", add_up)
        program.whole[name] = program.whole["more"]
        program.alone[name] = program.alone["more"]
    program.compute("step", "Reciprocal", [name], lambda v: 1 / v)
    return program.end(moves={HEAD: "step"})


def test_without_a_look_no_line_is_known() -> None:
    finding = find(None)
    assert (finding.code, finding.variables) == ("unexplained", (HEAD,))
    assert "model.py" not in finding.explanation


@pytest.mark.parametrize(
    ("made", "code", "line"),
    [
        (np.mean, "statistics-not-synchronized", "middle"),
        (np.sum, "nonlinear-before-reduction", "more"),
    ],
    ids=["mean", "addend"],
)
def test_a_look_names_the_line_and_what_is_made_of_there(
    made: Callable[[Array], Any], code: str, line: str
) -> None:
    finding = find(look(made))
    assert (finding.code, finding.phase) == (code, "variable")
    assert "what the step is made of first goes another way" in finding.explanation
    assert f"model.py:{line}" in finding.explanation
    assert "what its own examples alone give" in finding.explanation


def test_what_each_adds_before_the_sum_counts_as_if_it_were_summed_again() -> None:
    finding = find(look(np.sum, joined=True))
    assert finding.code == "double-reduction"
    assert "adds in full what is the same on all" in finding.explanation
