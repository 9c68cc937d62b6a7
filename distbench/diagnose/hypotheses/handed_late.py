"""What is handed on in place of a gradient that state keeps for a later step."""

from __future__ import annotations

from collections.abc import Iterator

from distbench.diagnose.clues.cases import take_rows
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.clues.keepers import find_held, find_keepers
from distbench.trace import SUMMED
from distbench.trace.numbers import Array


def explain_by_keeping(context: Context) -> Iterator[Hypothesis]:
    """What state held before the step, which keeps what is due after it.

    It holds the gradient of the step before, or nothing where each step starts from the
    state of one device, which keeps none.
    """
    if context.phase not in SUMMED:
        return
    keepers = context.work_out("keepers", lambda: find_keepers(context.evidence))
    predicted: dict[int, Array] = {}
    names: dict[str, None] = {}
    for number, case in context.list_cases():
        info = keepers.get(case.key.variable)
        held = None if info is None else find_held(context.evidence, info, case.key)
        if info is not None and held is not None:
            predicted[number] = take_rows(held, case)
            names[info.path] = None
    if predicted:
        yield Hypothesis(
            code="stale-gradient",
            predicted=predicted,
            detail=f"it is what '{min(names)}' held before the step, which here, and "
            "not on one device, keeps the gradient of this step for the next one",
        )
