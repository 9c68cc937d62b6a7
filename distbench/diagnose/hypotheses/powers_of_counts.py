"""Terms of a loss that are divided by the number of the own examples repeatedly."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from distbench.compare.parts import Parts, join_parts, split_parts
from distbench.compare.values import Array
from distbench.diagnose.context import Context, Hypothesis, take_rows
from distbench.trace import WHOLE

_POWERS = {2: "twice", 3: "three times"}


def explain_by_powers_of_counts(context: Context) -> Iterator[Hypothesis]:
    """A term is s_r / n_r^p on replica r, where one device has s / G^p of the whole.

    The square of a gradient of a mean over the own examples is such with p = 2: even
    shards have N^2 times their share of it. Sums that are right may stand beside it.
    """
    if (
        not context.root
        or context.replicas == 1
        or context.evidence.measure.shards_known
    ):
        return
    n = context.replicas
    for power, times in _POWERS.items():
        predicted: dict[int, Array] = {}
        for number, case in context.list_cases():
            parts = split_parts(context.evidence, case.key, power)
            if not parts or not _fits(context, number, parts, power):
                break
            own = np.sum([part.total + part.mean for part in parts], axis=0)
            predicted[number] = take_rows(own, case)
        else:
            yield Hypothesis(
                code="loss-not-scaled",
                predicted=predicted,
                detail="each replica's loss has a term that it divides by the number "
                f"of its own examples {times}, as where something is made of the "
                "gradient of a mean over them: even shards have "
                f"N^{power} = {n**power} times their share of it",
                advice="Divide by the size of the global batch, also what an inner "
                "gradient is taken of.",
            )
            return


def _fits(context: Context, number: int, parts: tuple[Parts, ...], power: int) -> bool:
    """Whether parts make up the global batch, and one shard with its examples thrice.

    The global batch of two even shards alone is as good as one with each example twice,
    from which the parts are made, and fits any power.
    """
    case = context.cases[number]
    replica = int(np.argmax(context.evidence.reference.shards))
    tripled = context.evidence.probes.get("tripled")
    value = None if tripled is None else tripled.get(case.key.at(replica))
    if case.key.replica != WHOLE or value is None:
        return False
    due = join_parts(context.get_shards(case), parts, power)
    thrice = 3 * parts[replica].total + 3.0 ** (1 - power) * parts[replica].mean
    return all(
        context.are_near(case, left, take_rows(right, case))
        for left, right in (
            (case.expected, due),
            (take_rows(value, case), thrice),
        )
    )
