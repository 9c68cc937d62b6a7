"""Terms of a loss that fall with the number of the own examples."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.compare.nature.parts import Parts, join_parts, split_parts
from distbench.diagnose.clues.cases import take_rows
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.trace import WHOLE
from distbench.trace.numbers import Array

_POWERS = {2: "twice", 3: "three times"}


def explain_by_powers_of_counts(context: Context) -> Iterator[Hypothesis]:
    """A term is s_r / n_r^p on replica r, where one device has s / G^p of the whole.

    The square of a gradient of a mean over the own examples is such with p = 2: even
    shards have N^2 times their share of it. So has a penalty that is divided once by
    their number. Some divide it by N besides. Sums that are right may stand beside it.
    """
    if (
        not context.root
        or context.replicas == 1
        or context.evidence.measure.shards_known
    ):
        return
    n = context.replicas
    for power, by_replicas in product(_POWERS, (0, 1)):
        predicted: dict[int, Array] = {}
        is_penalty = power == 2
        for number, case in context.list_cases():
            parts = split_parts(context.evidence, case.key, power)
            if not parts or not _fits(context, case, parts, power):
                break
            is_penalty &= _is_same_for_all(context, case, parts)
            own = [part.total + part.mean / n**by_replicas for part in parts]
            predicted[number] = take_rows(np.sum(own, axis=0), case)
        else:
            name = _name_penalty if is_penalty else _name_term
            yield name(context, predicted, power, by_replicas)


def _name_term(
    context: Context, predicted: dict[int, Array], power: int, by_replicas: int
) -> Hypothesis:
    return Hypothesis(
        code="loss-not-scaled",
        predicted=predicted,
        detail="each replica's loss has a term that it divides by the number of its "
        f"own examples {_POWERS[power]}, as where something is made of the gradient "
        f"of a mean over them: even shards have {_tell(context, power - by_replicas)} "
        "times their share of it",
        advice="Divide by the size of the global batch, also what an inner gradient is "
        "taken of.",
    )


def _name_penalty(
    context: Context, predicted: dict[int, Array], power: int, by_replicas: int
) -> Hypothesis:
    besides = "" if by_replicas else ", and by num_replicas_in_sync"
    return Hypothesis(
        code="regularizer-not-scaled",
        predicted=predicted,
        detail="each replica divides what does not depend on the examples by the "
        "number of its own: of even shards the sum has it "
        f"{_tell(context, power - by_replicas)} times",
        advice="Divide the penalty by the size of the global batch"
        f"{besides}, before it joins the loss.",
    )


def _tell(context: Context, power: int) -> str:
    n = context.replicas
    return f"N = {n}" if power == 1 else f"N^{power} = {n**power}"


def _is_same_for_all(context: Context, case: Pair, parts: tuple[Parts, ...]) -> bool:
    """Whether replicas differ in a term as the numbers of their examples do."""
    terms = [
        take_rows(size * part.mean, case)
        for size, part in zip(context.get_shards(case), parts, strict=True)
    ]
    most = max(context.get_shards(case))
    return all(
        context.are_near(case, term / most, terms[0] / most) for term in terms[1:]
    )


def _fits(context: Context, case: Pair, parts: tuple[Parts, ...], power: int) -> bool:
    """Whether parts make up the global batch, and one shard with its examples thrice.

    The global batch of two even shards alone is as good as one with each example twice,
    from which the parts are made, and fits any power.
    """
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
