"""Programs that average what they compute of means, and go wrong elsewhere.

Each replica's gradient is then N times its share, and the average undoes it. Where the
average is wrong too, nothing does, though nothing is wrong with the loss.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

import numpy as np

from distbench.diagnose.judgement import Judgement
from distbench.diagnose.rank import ALL
from distbench.evidence import Evidence
from distbench.trace import COMPUTED, GRADIENTS, Phase, SparseRows, Trace, Value, Values
from distbench.verdict import Finding, Status

_OWN_MEAN = "loss-not-scaled"
"""Of uneven shards a mean is N times its share, as an average has it, or nearly."""
_SAME = 1e-3
"""A fitted ratio that is no farther from N is N."""


def read_averaged(evidence: Evidence, judgement: Judgement) -> Evidence | None:
    """What was seen, with gradients as shares of their average.

    None unless gradients that are N times too large, or those of own means, are told
    first of a run, but for what is wrong with the mean of its losses.
    """
    n = evidence.observed.replicas
    if judgement.status is not Status.FAIL:
        return None
    # How undeclared losses combine is a guess, so what is said of them may be wrong.
    is_open = evidence.subject.loss_reduction is None
    told = (
        f
        for f in judgement.findings
        if f.phase != "loss" or (is_open and f.code == _OWN_MEAN)
    )
    first = next(told, None)
    if n == 1 or evidence.measure.shards_known or first is None:
        return None
    is_whole = first.phase in COMPUTED and first.confidence >= ALL
    if not is_whole or not (first.code == _OWN_MEAN or _is_multiple(first, n)):
        return None
    apart = evidence.fed.apart
    fed = replace(
        evidence.fed,
        apart=None if apart is None else _divide(apart, n, GRADIENTS),
        sums=tuple(_count_shares(trace, n) for trace in evidence.fed.sums),
    )
    return replace(
        evidence,
        observed=_divide(evidence.observed, n, ("local_gradient",)),
        fed=fed,
    )


def tells_more(judgement: Judgement, replicas: int) -> bool:
    """Whether it names other causes than that all is N times too large."""
    return judgement.status is Status.FAIL and all(
        finding.confidence >= ALL
        and finding.code != "unexplained"
        and not _is_multiple(finding, replicas)
        for finding in judgement.findings
    )


def _is_multiple(finding: Finding, replicas: int) -> bool:
    ratio = finding.ratio
    return ratio is not None and math.isclose(ratio, replicas, rel_tol=_SAME)


def _divide(trace: Trace, by: int, phases: tuple[Phase, ...]) -> Trace:
    values = Values(trace.values)
    for key in list(values):
        if key.phase in phases:
            values[key] = _divide_value(values[key], by)
    return replace(trace, values=values)


def _divide_value(value: Value, by: int) -> Value:
    """In float64, where dividing rounds nothing that a bound would have to allow."""
    if isinstance(value, SparseRows):
        return replace(value, values=np.asarray(value.values, np.float64) / by)
    return np.asarray(value, np.float64) / by


def _count_shares(trace: Trace, replicas: int) -> Trace:
    """A sum that one device was fed with, as what it is of the shares."""
    factor = float(cast(float, trace.notes["factor"])) * replicas
    return replace(trace, notes={**trace.notes, "factor": factor})
