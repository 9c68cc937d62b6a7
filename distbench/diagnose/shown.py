"""Whether `fit` shows the loss that it shows on one device.

What `train_step` returns on each replica `fit` makes one number of: tf_keras adds them
up, Keras 3 takes their mean. Which of the two fits a number only its author knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from distbench.compare.values import densify
from distbench.diagnose.names import tell_more
from distbench.evidence import Evidence
from distbench.trace import SHOWN, Trace
from distbench.verdict import Finding

_SAME = 1e-4
"""Share of a number by which it may differ: rounding leaves less."""
_LOSS = "loss"


def find_shown(evidence: Evidence) -> Iterator[Finding]:
    """The finding for a loss that `fit` shows N times as large, or as small, as it is.

    Where one device shows another one in some other way, as of batch statistics that
    each replica has for itself, the loss itself is what has to be judged.
    """
    pairs = _list_pairs(evidence).get(_LOSS, [])
    replicas = evidence.observed.replicas
    times = next((t for t in (replicas, 1 / replicas) if _are(pairs, t)), None)
    if times is None or replicas == 1:
        return
    step, (shown, due) = next((s, p) for s, p in enumerate(pairs) if p[1])
    often = f"N = {replicas} times" if times > 1 else f"1/N = 1/{replicas} of"
    yield Finding(
        code="loss-misreported",
        phase="loss",
        step=step,
        variable="",
        replicas=tuple(range(replicas)),
        ratio=times,
        error=abs(shown - due) / abs(due),
        bound=_SAME,
        explanation=(
            f"Step {step}, loss: the gradients are right, and fit shows {shown:.6g} as "
            f"'loss', which is {often} what it shows on one device, {due:.6g}: of what "
            "train_step returns on each replica tf_keras shows the sum, and Keras 3 "
            f"the mean (loss-misreported; ratio {times:.6g}, against one device, the "
            "global batch). Return the result of a metric, or under tf_keras the "
            "replica's share of the loss, and under Keras 3 the mean over its examples."
        ),
        confidence=1.0,
    )


def note_shown(evidence: Evidence) -> str:
    """Names other numbers that `fit` shows, and that one device shows otherwise."""
    known = {metric.name for metric in evidence.observed.metrics}
    told = [
        f"{pairs[-1][0]:.6g} as '{name}', and {pairs[-1][1]:.6g} on one device"
        for name, pairs in _list_pairs(evidence).items()
        if name not in known | {_LOSS} and not _are(pairs, 1.0)
    ]
    if not told:
        return ""
    return (
        f"note: fit shows {told[0]}{tell_more(told)}: of what train_step returns on "
        "each replica tf_keras shows the sum, and Keras 3 the mean"
    )


def _list_pairs(evidence: Evidence) -> Mapping[str, list[tuple[float, float]]]:
    """By name: what the cluster and one device show in each step."""
    shown, due = map(_read, (evidence.observed, evidence.reference))
    return {
        name: list(zip(shown[name], due[name], strict=True))
        for name in shown
        if name in due and len(shown[name]) == len(due[name])
    }


def _read(trace: Trace) -> Mapping[str, list[float]]:
    found: dict[str, list[float]] = {}
    for step in range(trace.steps):
        for name, value in sorted(_list_shown(trace, step)):
            found.setdefault(name, []).append(value)
    return found


def _list_shown(trace: Trace, step: int) -> Iterator[tuple[str, float]]:
    for key, value in trace.select(step=step, phase="loss"):
        if key.variable.startswith(SHOWN):
            yield key.variable.removeprefix(SHOWN), float(densify(value))


def _are(pairs: list[tuple[float, float]], times: float) -> bool:
    """Whether all numbers are so many times those of one device, and some are not 0."""
    both = np.array(pairs, np.float64)
    if not both.size or not np.isfinite(both).all():
        return times == 1.0
    apart = np.abs(both[:, 0] - times * both[:, 1])
    size = np.abs(both).max()
    return bool((apart <= _SAME * size).all() and (size > 0 or times == 1.0))
