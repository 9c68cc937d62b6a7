"""One replica's part of a sum that is wrong alone.

Of a program nobody knows what a replica ought to have seen: it may normalise by what
all of them count. But how its values relate to those of its shard on one device shows
in the steps that are right, and a replica that keeps to that in a wrong step is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.ratio import are_near, fit_common_ratio, fit_ratio
from distbench.diagnose.clues.context import Context, find_shards
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.names import name_replicas
from distbench.trace import WHOLE
from distbench.trace.numbers import Array, densify


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WrongSum:
    """A wrong sum, replica by replica.

    Attributes:
        due: What each replica's part would be, as its shard and the right steps say.
        wrong: The replicas whose part is something else; neither none nor all.
    """

    due: tuple[Array, ...]
    wrong: tuple[int, ...]


def find_parts(context: Context, case: Pair) -> WrongSum | None:
    """Which replicas' parts of a sum are wrong; None where that is not known."""
    if case.key.replica != WHOLE or not case.terms:
        return None
    shards = find_shards(context, case)
    if not shards:
        return None
    factors = [
        _fit_right_steps(context, case, replica) for replica in range(len(shards))
    ]
    scale = _fit_scale(context, case)
    due = tuple(scale * f * s for f, s in zip(factors, shards, strict=True))
    wrong = tuple(
        replica
        for replica, (seen, expected) in enumerate(zip(case.terms, due, strict=True))
        if not are_near(seen, expected)
    )
    if not 0 < len(wrong) < len(due):
        return None
    held = [due[r] for r in range(len(due)) if r not in wrong]
    if not any(map(np.any, held)):
        return None  # a replica without examples is right whatever happened
    return WrongSum(due=due, wrong=wrong)


def list_wrong(context: Context, cases: tuple[Pair, ...]) -> tuple[int, ...]:
    """The replicas that are wrong in sums over all of them; empty if none can tell."""
    found = [find_parts(context, case) for case in cases]
    wrong = {replica for parts in found if parts is not None for replica in parts.wrong}
    return tuple(sorted(wrong)) if all(found) else ()


def explain_by_own_part(context: Context) -> Iterator[Hypothesis]:
    """Some replicas alone have a factor on all that they compute."""
    if not context.root or context.evidence.measure.shards_known:
        return
    found = {n: find_parts(context, case) for n, case in context.list_cases()}
    known = {n: parts for n, parts in found.items() if parts is not None}
    if not known or len(known) < len(found):
        return
    wrong = sorted({replica for parts in known.values() for replica in parts.wrong})
    fit = fit_common_ratio(
        (context.cases[n].terms[r], parts.due[r])
        for n, parts in known.items()
        for r in wrong
    )
    if fit is None:
        return
    yield Hypothesis(
        code="scale-error",
        predicted={
            n: np.asarray(
                sum(
                    fit.ratio * parts.due[r] if r in wrong else term
                    for r, term in enumerate(context.cases[n].terms)
                )
            )
            for n, parts in known.items()
        },
        detail=f"what {name_replicas(wrong)} adds is {fit.ratio:.8g} times what it "
        "should be, and the others are right",
        replicas=tuple(wrong),
        ratio=fit.ratio,
    )


def _fit_right_steps(context: Context, case: Pair, replica: int) -> float:
    """How a replica's values relate to those of its shard alone where all is right."""
    wrong = {other.key.step for other in context.cases}
    fit = fit_common_ratio(
        (densify(value), densify(due))
        for key, value in context.evidence.observed.select(
            phase=case.key.phase, variable=case.key.variable, replica=replica
        )
        if key.call == case.key.call and key.step not in wrong
        if (due := context.evidence.reference.get(key)) is not None
    )
    return 1.0 if fit is None else fit.ratio


def _fit_scale(context: Context, case: Pair) -> float:
    """What the addends of a sum are multiplied by: 1/N where it is a mean."""
    if case.key.phase != "loss":
        return 1.0
    raw = [
        context.evidence.observed.get(replace(case.key, replica=replica))
        for replica in range(len(case.terms))
    ]
    sizes = [np.zeros(()) if value is None else densify(value) for value in raw]
    fit = fit_ratio(np.stack(case.terms), np.stack(sizes))
    return 1.0 if fit is None else fit.ratio
