"""What replicas take of each other before the gradient, scaled by their number."""

from __future__ import annotations

from collections.abc import Iterator

from distbench.compare.values import Array
from distbench.diagnose.context import Context, Hypothesis, take_rows
from distbench.trace import COMPUTED, WHOLE

_SCALED = (
    ("exchanged-divided", "1/N = 1/{n} of", "a mean in place of a sum", -1),
    (
        "exchanged-multiplied",
        "N = {n} times",
        "a sum of means, or of what is summed",
        1,
    ),
)


def explain_by_scaled_exchange(context: Context) -> Iterator[Hypothesis]:
    """A mean in place of a sum, or N times the sum, in what losses are made of.

    No factor of the loss shows it, unless that is divided by what is exchanged: one
    device computes what comes of it.
    """
    is_sum = all(case.key.replica == WHOLE for case in context.cases)
    if context.phase not in COMPUTED or not is_sum:
        return
    n = context.replicas
    for name, times, alike, power in _SCALED:
        probe = context.evidence.probes.get(name)
        if probe is None:
            continue
        predicted: dict[int, Array] = {}
        for number, case in context.list_cases():
            value = probe.get(case.key)
            if value is not None:
                predicted[number] = take_rows(value, case)
        yield Hypothesis(
            code="scale-error",
            predicted=predicted,
            detail=f"what replicas take of each other before the gradient is "
            f"{times.format(n=n)} what one device has there: {alike}, say",
            ratio=float(n) ** power,
        )
