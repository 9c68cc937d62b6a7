"""Whether what passed could have failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from distbench.compare.arrays.copies import are_same
from distbench.compare.arrays.pair import TOLD
from distbench.compare.comparison import Comparison
from distbench.compare.state.leading import find_unled, is_trained
from distbench.details import Compared
from distbench.evidence import Evidence
from distbench.trace import GRADIENTS, INITIAL, WHOLE, Phase, Trace
from distbench.trace.numbers import take_numbers

Strength = Literal["effective", "hidden", "empty", "lacking"]
"""What comparisons of one kind prove.

If none is effective, noise hides what they would show, or they would hold whatever is
lost, or there is none at all.
"""

Demand = tuple[tuple[Phase, str], ...]
"""Phase and relation of comparisons that must all be effective."""

_DEMANDS: dict[str, tuple[Demand, ...]] = {
    "loss": ((("loss", "reference"),),),
    "gradient": (
        (("local_gradient", "reference"), ("reduced_gradient", "follows")),
        (("reduced_gradient", "reference"),),
        (("applied_gradient", "reference"),),
        (("variable", "reference"),),
        (("variable", "average"),),
        (("local_gradient", "reference"), ("variable", "added")),
    ),
    "variable": (
        (("variable", "follows"),),
        (("variable", "reference"),),
        (("variable", "added"),),
        (("variable", "average"),),
    ),
}
"""What a run must prove, and by which comparisons; one row of each is enough.

Right local gradients say nothing of their sum, and a sum that follows from local
gradients says nothing of those: only both together, or the sum (or what comes of it)
against the reference, prove a gradient right. Where nobody saw the sum, what a step
makes of it stands for it.
"""

_DEMANDS_OF_THE_REST: dict[str, tuple[Demand, ...]] = {
    "reduction": ((("reduced_gradient", "follows"),),),
    "variable": _DEMANDS["variable"],
}
"""What is demanded where one device does not tell what a replica has to compute."""


def find_weak_phases(
    evidence: Evidence, comparisons: Sequence[Comparison], *, first_known: bool = True
) -> tuple[tuple[str, Strength], ...]:
    """Required phases without an effective comparison, and why there is none.

    One that failed could have failed, where a run passes for all that. What does not
    follow from gradients, as a counter, proves nothing of these, nor of an update.

    Args:
        evidence: What was observed and expected.
        comparisons: All comparisons of the run.
        first_known: Whether loss and local gradients have a reference.
    """
    found: dict[tuple[str, str], Strength] = {}
    idle = _find_idle(evidence)
    for c in comparisons:
        if c.step < 0 or (c.phase == "variable" and c.variable in idle):
            continue
        place = (c.phase, c.relation)
        if c.effective:
            found[place] = "effective"
        elif found.get(place) != "effective" and (c.hidden or place not in found):
            found[place] = "hidden" if c.hidden else "empty"
    demands = _DEMANDS if first_known else _DEMANDS_OF_THE_REST
    return tuple(_list_weak(comparisons, found, demands))


def find_uncompared(
    evidence: Evidence, comparisons: Sequence[Compared]
) -> tuple[str, ...]:
    """Variables of the model that a cluster trains, and that nothing was held against.

    Copies that agree with each other may agree on what is wrong, and what follows from
    gradients that were not compared may follow from wrong ones. Of what has gradients
    the values before the first step say nothing: steps make others of them.
    """
    held = [
        c for c in comparisons if c.phase == "variable" and c.relation != "replicas"
    ]
    begun = {c.variable for c in held}
    compared = {c.variable for c in held if c.step != INITIAL}
    return tuple(
        info.path
        for info in evidence.observed.variables
        if info.role == "variable"
        and info.synchronised  # what a replica keeps for itself may depend on its shard
        and info.path not in compared
        and (info.path not in begun or is_trained(evidence, info.path))
        and _is_changed(evidence.observed, info.path)
    )


def _find_idle(evidence: Evidence) -> frozenset[str]:
    """Variables that change, or do not, whatever gradients are.

    A counter, which examples do not lead either, is such. So is what is not to be
    trained, as a moving average of the data, where one device has no gradient but 0;
    where it has others, it may follow from these, as a wider copy of a variable does.
    """
    reference = evidence.reference
    infos = [info for info in reference.variables if info.role == "variable"]
    trained = [info for info in infos if is_trained(evidence, info.path)]
    if not trained:
        return frozenset()
    idle = find_unled(evidence) & {info.path for info in infos}
    seen = (
        value
        for phase in GRADIENTS
        for _, value in reference.select(phase=phase, replica=WHOLE)
    )
    if not reference.trained or any(take_numbers(value).any() for value in seen):
        return idle
    return idle | {v.path for v in infos if v not in trained and not v.trainable}


def _is_changed(observed: Trace, path: str) -> bool:
    for key, value in observed.select(phase="variable", variable=path):
        start = observed.get(replace(key, step=INITIAL))
        if start is None or not are_same(value, start):
            return True
    return False


def _list_weak(
    comparisons: Sequence[Comparison],
    found: dict[tuple[str, str], Strength],
    required: dict[str, tuple[Demand, ...]],
) -> Iterator[tuple[str, Strength]]:
    recorded = {c.phase for c in comparisons if c.step >= 0 and c.relation not in TOLD}
    for name, demands in required.items():
        phases = {phase for demand in demands for phase, _ in demand}
        if not phases & recorded:
            if name == "variable":
                yield name, "lacking"
            continue
        strengths = [
            [found.get(place, "lacking") for place in demand] for demand in demands
        ]
        if any(set(row) == {"effective"} for row in strengths):
            continue
        known: tuple[Strength, ...] = ("hidden", "empty")
        reasons = (one for one in known if any(one in row for row in strengths))
        yield name, next(reasons, "lacking")
