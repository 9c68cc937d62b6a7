"""Programs that average what they compute of means.

Each replica's gradient is then N times its share, and the average undoes it. Where the
average is wrong too, nothing does, though nothing is wrong with the loss. Nor does
anything show that it does where the average itself has no reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from distbench.compare.arrays.ratio import SAME, are_same_factors
from distbench.compare.nature.averaged_losses import averages_losses
from distbench.diagnose.causes.explain import tells_all
from distbench.diagnose.causes.rank import ALL
from distbench.diagnose.clues.fit import Row, fit_weights, leaves_nothing
from distbench.diagnose.judgement import Judgement
from distbench.evidence import Evidence
from distbench.fed import get_factor
from distbench.trace import (
    COMPUTED,
    GRADIENTS,
    SUMMED,
    Phase,
    Trace,
    TraceKey,
    Values,
    change_numbers,
)
from distbench.trace.numbers import Array, densify, measure_norm
from distbench.verdict import Finding, Status

_OWN_MEAN = "loss-not-scaled"
"""Of uneven shards a mean is N times its share, as an average has it, or nearly."""
_MEAN = "mean-instead-of-sum"

AVERAGED = (
    "note: the replicas' gradients are averaged, and taken for N times their shares, "
    "as their losses are"
)


def read_averaged(evidence: Evidence, judgement: Judgement) -> Evidence | None:
    """What was seen, with gradients as shares of their average.

    None unless gradients that are N times too large, or those of own means, are told
    first of a run, but for what is wrong with the mean of its losses. Or their average,
    if the losses are averaged as well: where the grouping of the examples matters, or
    their scatter is large, nobody may know how large each gradient should be.
    """
    n = evidence.observed.replicas
    is_alone = n == 1 or evidence.measure.shards_known
    if is_alone or judgement.status is not Status.FAIL:
        return None
    if _find_large(evidence, judgement) is None:
        mean = _find_mean(judgement)
        if mean is None or not averages_losses(evidence, mean.step):
            return None
    return None if _adds_up(evidence) else take_shares(evidence)


def _adds_up(evidence: Evidence) -> bool:
    """Whether sums, or the variables where nobody saw these, tell of no average.

    N times an average is a sum as well: who adds up averages is known otherwise.
    """
    if evidence.subject.sums_means:
        return False
    return _has_whole_addends(evidence) or _leads_on(evidence)


def _has_whole_addends(evidence: Evidence) -> bool:
    """Whether the first sum has what some replicas hand on, and not an N-th of it.

    Where losses are said to be averaged, one that has that of a single replica is no
    sum: nobody made it.
    """
    rows = list(_list_sums(evidence))
    weights = fit_weights(rows) if rows else None
    if weights is None or not leaves_nothing(rows, weights):
        return False
    is_whole, is_left = (np.abs(weights - due) <= SAME for due in (1, 0))
    least = 2 if evidence.subject.loss_reduction == "mean" else 1
    return bool(np.sum(is_whole) >= least and np.all(is_whole | is_left))


def _list_sums(evidence: Evidence) -> Iterator[Row]:
    """The first replica's sums, of what one device hands on of each own gradient.

    That is the gradient itself where the step does nothing to it on its way.
    """
    observed, apart = evidence.observed, evidence.fed.apart
    sums = observed.select(step=0, phase="reduced_gradient", replica=0)
    for number, (key, value) in enumerate(sums):
        own = key if apart else replace(key, phase="local_gradient")
        parts = (apart or observed).get_replicas(own)
        if len(parts) == observed.replicas:
            features = tuple(map(densify, parts))
            yield Row(number=number, target=densify(value), features=features)


def _leads_on(evidence: Evidence) -> bool:
    """Whether variables are what the sum of gradients that nobody saw leads to."""
    fed, observed = evidence.fed, evidence.observed
    if fed.due is None or fed.mean is None:
        return False
    wrong: list[Array] = []
    apart: list[Array] = []
    for key, value in fed.due.select(phase="variable", replica=0):
        if evidence.tier == "free" and key.step > 0:
            continue  # it started from another state than the cluster
        seen, mean = observed.get(key), fed.mean.get(key)
        if seen is not None and mean is not None:
            due = densify(value)
            wrong.append((densify(seen) - due).ravel())
            apart.append((densify(mean) - due).ravel())
    if not apart:
        return False
    rest, told = (measure_norm(np.concatenate(found)) for found in (wrong, apart))
    return rest <= SAME * told and told > 0


def take_shares(evidence: Evidence) -> Evidence:
    """What was seen, with gradients as shares of their average."""
    n = evidence.observed.replicas
    apart = evidence.fed.apart
    fed = replace(
        evidence.fed,
        apart=None if apart is None else _divide(apart, n, GRADIENTS),
        due=evidence.fed.mean,  # of the gradients, which the shares add up to
        changed=None,
        mean=None,
        sums=tuple(_count_shares(trace, n) for trace in evidence.fed.sums),
    )
    return replace(
        evidence,
        observed=_divide(evidence.observed, n, ("local_gradient",)),
        fed=fed,
        measure=replace(evidence.measure, times_share=float(n)),
    )


def _find_large(evidence: Evidence, judgement: Judgement) -> Finding | None:
    """What says first, but for the losses, that gradients are those of own means."""
    # How undeclared losses combine is a guess, so what is said of them may be wrong.
    # What stands for those of own means is said of their gradients.
    is_open = evidence.subject.loss_reduction != "sum"
    told = (
        f
        for f in judgement.findings
        if f.phase != "loss" or (is_open and f.code == _OWN_MEAN)
    )
    first = next(told, None)
    if first is None or first.phase not in COMPUTED:
        return None
    n = evidence.observed.replicas
    return first if first.code == _OWN_MEAN or _is_multiple(first, n) else None


def _find_mean(judgement: Judgement) -> Finding | None:
    means = (f for f in judgement.findings if f.code == _MEAN and f.confidence >= ALL)
    return next(means, None)


def tells_more(evidence: Evidence, found: Judgement, averaged: Judgement) -> bool:
    """Whether averages read so have causes, and not that all is N times too large.

    A function without a size, such as a sign, hides that: then fewer causes say more.

    Args:
        evidence: What was seen.
        found: What is told of it.
        averaged: What is told of it with gradients as shares of their average.
    """
    large = _find_large(evidence, found)
    is_less = large is None and len(averaged.findings) < len(found.findings)
    if not is_less and (large is None or large.confidence < ALL):
        return False
    return averaged.status is Status.FAIL and all(
        tells_all(finding)
        and finding.code != "unexplained"
        and not _is_loss_told_late(evidence, finding)
        for finding in averaged.findings
    )


def _is_loss_told_late(evidence: Evidence, finding: Finding) -> bool:
    """Whether a sum is N times an average because nobody averages.

    Where somebody does, it is averages that are added up.
    """
    is_sum = finding.phase in SUMMED and evidence.subject.sums_means
    return _is_multiple(finding, evidence.observed.replicas) and not is_sum


def _is_multiple(finding: Finding, replicas: int) -> bool:
    ratio = finding.ratio
    return ratio is not None and are_same_factors(ratio, replicas)


def change_gradients(
    trace: Trace,
    phases: tuple[Phase, ...],
    change: Callable[[TraceKey, Array], Array],
) -> Trace:
    """A trace with other gradients of some phases."""
    values = Values(trace.values)
    for key in list(values):
        if key.phase in phases:
            # In float64, where it rounds nothing that a bound would have to allow.
            values[key] = change_numbers(
                values[key],
                lambda numbers, key=key: change(key, np.asarray(numbers, np.float64)),  # type: ignore[misc]
            )
    return replace(trace, values=values)


def _divide(trace: Trace, by: int, phases: tuple[Phase, ...]) -> Trace:
    return change_gradients(trace, phases, lambda _, numbers: numbers / by)


def _count_shares(trace: Trace, replicas: int) -> Trace:
    """A sum that one device was fed with, as what it is of the shares."""
    factor = get_factor(trace) * replicas
    return replace(trace, notes={**trace.notes, "factor": factor})
