"""What replicas take of each other before the gradient, scaled by their number."""

from __future__ import annotations

from collections.abc import Iterator

from distbench.compare.nature.met import goes_on_from_gradients
from distbench.diagnose.clues.astray import tell_place_of
from distbench.diagnose.clues.cases import take_rows
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.trace import COMPUTED, WHOLE
from distbench.trace.numbers import Array

_SCALED = (
    ("exchanged-divided", "1/N = 1/{n} of", -1),
    ("exchanged-multiplied", "N = {n} times", 1),
)
_OF_VALUES = {
    "exchanged-divided": ("scale-error", "a mean in place of a sum"),
    "exchanged-multiplied": (
        "scale-error",
        "a sum of means, or of what is summed, or beside a loss that is divided by N",
    ),
}
_OF_GRADIENTS = {
    "exchanged-divided": ("mean-instead-of-sum", "their mean in place of their sum"),
    "exchanged-multiplied": ("double-reduction", "a sum of what is summed already"),
}


def explain_by_scaled_exchange(context: Context) -> Iterator[Hypothesis]:
    """A mean in place of a sum, or N times the sum, in what losses are made of.

    No factor of the loss shows it, unless that is divided by what is exchanged: one
    device computes what comes of it.
    """
    is_sum = all(case.key.replica == WHOLE for case in context.cases)
    if context.phase not in COMPUTED or not is_sum:
        return
    evidence, n = context.evidence, context.replicas
    is_summed = goes_on_from_gradients(evidence)
    what = "what replicas take of each other before the gradient is"
    if is_summed:
        what = "the gradients of all, from which the step goes on to its loss, are"
    for name, times, power in _SCALED:
        code, alike = (_OF_GRADIENTS if is_summed else _OF_VALUES)[name]
        probe = evidence.probes.get(name)
        if probe is None:
            continue
        predicted: dict[int, Array] = {}
        for number, case in context.list_cases():
            value = probe.get(case.key)
            if value is not None:
                predicted[number] = take_rows(value, case)
        ratio = float(n) ** power
        yield Hypothesis(
            code=code,
            predicted=predicted,
            detail=f"{what} {times.format(n=n)} what would give one device's loss: "
            f"{alike}, say{tell_place_of(context, ratio)}",
            ratio=ratio,
        )
