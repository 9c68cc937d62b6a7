"""Programs that weigh the replicas' gradients before they add them up.

A mean over the own shard is no share of the whole, and its weight makes it one. Where
such a sum is wrong, that is a fault of the weights or of the sum, and nothing is wrong
with the gradients before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from distbench.compare.arrays.aligned import align_values
from distbench.compare.arrays.ratio import SAME, are_alike, are_same_factors
from distbench.diagnose.causes.rank import ALL
from distbench.diagnose.clues.fit import Row, fit_weights, leaves_nothing
from distbench.diagnose.judgement import Judgement
from distbench.diagnose.readings.averaged import change_gradients
from distbench.evidence import Evidence
from distbench.trace import COMPUTED, GRADIENTS, WHOLE, Phase, Trace, TraceKey
from distbench.trace.numbers import Array, densify
from distbench.verdict import Status

_OF_WEIGHTS = ("double-reduction", "mean-instead-of-sum", "scale-error")
"""What may be wrong with a sum of weighted gradients. A clip weighs them as well, and
is no weight that a program gives them."""


def read_weighted(evidence: Evidence, judgement: Judgement) -> Evidence | None:
    """What was seen, with each gradient as the share that its right weight makes it.

    None unless gradients and their sums are both told to be wrong, some weights of the
    replicas make these gradients one device's, and others the sum that was seen. Both
    have to differ among the replicas: who weighs nothing, or all alike, takes the
    gradients themselves for shares.
    """
    n = evidence.observed.replicas
    phases = {finding.phase for finding in judgement.findings}
    are_wrong = "reduced_gradient" in phases and not phases.isdisjoint(COMPUTED)
    if n == 1 or evidence.measure.shards_known or not are_wrong:
        return None
    due: dict[int, Array] = {}
    makes_loss = True
    for step in range(evidence.reference.steps):
        fit = _fit_step(evidence, step)
        if fit is None:
            return None
        due[step] = fit.due
        makes_loss = makes_loss and _makes_loss(evidence, step, fit.taken)
    known = evidence.measure.known
    if makes_loss:  # it is right or wrong as the gradients are
        known = tuple(phase for phase in known if phase != "loss")
    apart = evidence.fed.apart
    fed = replace(
        evidence.fed,
        apart=None if apart is None else _weigh(apart, due, GRADIENTS),
        sums=(),  # of other gradients
        changed=None,
    )
    return replace(
        evidence,
        observed=_weigh(evidence.observed, due, ("local_gradient",)),
        fed=fed,
        measure=replace(
            evidence.measure, known=known, weighted=tuple(map(float, due[0]))
        ),
    )


def explains_sums(judgement: Judgement) -> bool:
    """Whether all that is wrong with weighted gradients is how they are added up."""
    return judgement.status is Status.FAIL and all(
        finding.code in _OF_WEIGHTS
        and finding.phase not in COMPUTED
        and finding.confidence >= ALL
        for finding in judgement.findings
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Weights:
    """What the replicas' gradients of a step count.

    Attributes:
        due: To make them one device's.
        taken: In the sum that was seen.
    """

    due: Array
    taken: Array


def _fit_step(evidence: Evidence, step: int) -> _Weights | None:
    whole, seen = [], []
    for number, (right, reduced, *own) in enumerate(_list_values(evidence, step)):
        whole.append(Row(number=number, target=right, features=tuple(own)))
        seen.append(Row(number=number, target=reduced, features=tuple(own)))
    due, taken = _fit(whole), _fit(seen)
    return None if due is None or taken is None else _Weights(due=due, taken=taken)


def _fit(rows: list[Row]) -> Array | None:
    """Weights that leave nothing, that differ, and by which every replica counts."""
    weights = fit_weights(rows)
    if weights is None or are_alike(weights) or not leaves_nothing(rows, weights):
        return None
    sizes = np.abs(weights)
    return weights if np.min(sizes) > SAME * np.max(sizes) else None


def _list_values(evidence: Evidence, step: int) -> Iterator[tuple[Array, ...]]:
    """One device's gradient of each update, the sum that was seen, and its addends."""
    observed = evidence.observed
    for key, whole in evidence.reference.select(
        phase="local_gradient", step=step, replica=WHOLE
    ):
        own = observed.get_replicas(key)
        reduced = observed.get(replace(key, phase="reduced_gradient", replica=0))
        if own and reduced is not None:
            yield tuple(v.total for v in align_values((whole, reduced, *own)))


def _makes_loss(evidence: Evidence, step: int, weights: Array) -> bool:
    """Whether the loss that is returned has the weights of the gradients."""
    key = TraceKey(step=step, phase="loss", variable="")
    alone = evidence.reference.get_replicas(key)
    seen = evidence.observed.get_replicas(key)
    if not (alone and seen):
        return False
    made = float(weights @ [float(densify(loss)) for loss in alone])
    shown = [float(densify(loss)) for loss in seen]
    kind = evidence.subject.loss_reduction
    ways = {"sum": np.sum(shown), "mean": np.mean(shown)}
    return any(
        are_same_factors(float(total), made)
        for way, total in ways.items()
        if kind in (None, way)
    )


def _weigh(trace: Trace, due: Mapping[int, Array], phases: tuple[Phase, ...]) -> Trace:
    return change_gradients(
        trace, phases, lambda key, numbers: due[key.step][key.replica] * numbers
    )
