"""The gradients that a wrong sum should have been made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from distbench.compare.arrays.pair import SUM, Pair
from distbench.diagnose.clues.cases import take_rows
from distbench.diagnose.clues.context import Context, find_shards
from distbench.trace import SUMMED, WHOLE, SparseRows, Value
from distbench.trace.numbers import Array

ADDED = ("local_gradient", "reduced_gradient")
"""Phases in which something may be done to addends before they are summed."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Source:
    """The gradients that one wrong value should have been made of.

    Attributes:
        number: Number of the case.
        case: The wrong value.
        terms: Gradient of each replica that takes part.
        replicas: Their numbers.
    """

    number: int
    case: Pair
    terms: tuple[Array, ...]
    replicas: tuple[int, ...]

    @property
    def arrived(self) -> bool:
        """Whether anything is left of the addends.

        Where nothing is, they may have cancelled: a cause can foretell that, but what
        was done to them cannot be read off.
        """
        return bool(np.any(self.case.observed))


def list_sources(context: Context, *, own: bool = False) -> list[Source]:
    """Cases whose addends are known, and to whose addends something was done.

    Args:
        context: The wrong values.
        own: Whether a replica's value is made of its own gradient alone. One to which
            nothing was done is as wrong, as nobody has added it up.
    """
    untouched = find_untouched(context)
    return [
        source
        for source in list_known(context, own=own)
        if source.number not in untouched
        and (own or not _is_plain_sum(context, source.case, source.terms))
    ]


def tell_own(context: Context, number: float) -> float:
    """A number of the addends, such as a limit, as one of the own gradients.

    These are N times their shares, of which a wrong average is made.
    """
    return number * context.times_share


def tell_joined(context: Context, mean: float = 1.0) -> str:
    """What is made of the replicas' own gradients: of their shares it is an average.

    Args:
        context: The wrong values.
        mean: What each addend is multiplied by, 1 or 1/N.
    """
    if mean == 1:
        return "added up" if context.times_share == 1 else "averaged"
    again = "" if context.times_share == 1 else ", and divided by N once more"
    return f"averaged{again}"


def list_known(context: Context, *, own: bool = False) -> Iterator[Source]:
    """Cases whose addends are known, each kind of phase in its own way."""
    for number, case in context.list_cases():
        replica = case.key.replica
        if context.phase == "local_gradient" and replica != WHOLE:
            terms: tuple[Array, ...] = (case.expected,)
            replicas: tuple[int, ...] = (replica,)
        else:
            # What was done to a replica's own gradient is in those that were observed.
            is_own = context.phase == "local_gradient"
            terms = find_shards(context, case) if is_own else context.find_terms(case)
            replicas = tuple(range(len(terms)))
        if own and terms and replica != WHOLE:
            terms, replicas = (terms[replica],), (replica,)
        if terms:
            yield Source(number=number, case=case, terms=terms, replicas=replicas)


def split_slices(context: Context, source: Source) -> Source:
    """A source whose addends are slices, as rules see them that leave rows apart.

    Each addend holds slices of different rows: the first ones of a replica's rows, the
    second ones, and so on. A source of dense gradients is left as it is.
    """
    gradients = [find_own_gradient(context, source.case, r) for r in source.replicas]
    if not any(isinstance(gradient, SparseRows) for gradient in gradients):
        return source
    terms: list[Array] = []
    replicas: list[int] = []
    for term, replica, seen in zip(
        source.terms, source.replicas, gradients, strict=True
    ):
        parts = (
            [take_rows(layer, source.case) for layer in seen.list_layers()]
            if isinstance(seen, SparseRows) and len(seen.indices)
            else [term]  # of an empty shard: no slices, and all of it 0
        )
        terms += parts
        replicas += [replica] * len(parts)
    return replace(source, terms=tuple(terms), replicas=tuple(replicas))


def find_own_gradient(context: Context, case: Pair, replica: int) -> Value | None:
    """A replica's own gradient, to which nothing has been done: dense or in slices."""
    key = replace(case.key, phase="local_gradient", replica=replica)
    evidence = context.evidence
    # One that is wrong itself shows what was done to it.
    is_wrong = context.phase == "local_gradient"
    observed = None if is_wrong else evidence.observed.get(key)
    return evidence.reference.get(key) if observed is None else observed


def _is_plain_sum(context: Context, case: Pair, terms: Sequence[Array]) -> bool:
    """Whether nothing was done to the addends: what is wrong has another cause."""
    return context.matches(case, np.asarray(sum(terms)))


def find_untouched(context: Context) -> dict[int, Source]:
    """Plain sums of the replicas' gradients that are not what one device has.

    Nothing was done to their addends, so none of that is the cause: one device makes
    something else of its own gradient.
    """
    if context.phase not in SUMMED:
        return {}
    if context.root and not context.evidence.measure.shards_known:
        return {}  # what a program makes of a shard alone is not always its part
    found: dict[int, Source] = {}
    for source in list_known(context):
        case, terms = source.case, source.terms
        if case.against == SUM:
            continue  # that is what it was held against
        due = replace(case, observed=case.expected)
        if _is_plain_sum(context, case, terms) and not _is_plain_sum(
            context, due, terms
        ):
            found[source.number] = source
    return found


def list_rounded(context: Context) -> list[Source]:
    """Plain sums of the replicas' gradients that are wrong by rounding alone.

    They were held against that sum, and hardly anything was done to their addends:
    TensorFlow multiplies by the limit and divides by it also what a clip leaves.
    """
    if context.phase not in SUMMED:
        return []
    return [
        source
        for source in list_known(context)
        if source.case.against == SUM
        and _is_plain_sum(context, source.case, source.terms)
    ]


def describe_untouched(context: Context) -> str:
    """Says so of wrong sums of which that is true, or `""`."""
    found = find_untouched(context)
    if not found or len(found) < len(context.cases):
        return ""
    return (
        "it is just the sum of the replicas' own gradients, and one device makes "
        "something else of its gradient than the cluster of that sum, as by a clip"
    )
