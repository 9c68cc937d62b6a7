"""Whether `fit` shows the loss that it shows on one device.

What `train_step` returns on each replica `fit` makes one number of: tf_keras adds them
up, Keras 3 takes their mean. Which of the two fits a number only its author knows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np

from distbench.compare.arrays.bounds import find_roundoff
from distbench.diagnose.names import tell_more
from distbench.diagnose.readings.unjudged import list_shown
from distbench.evidence import Evidence
from distbench.trace import SHOWN
from distbench.trace.numbers import measure_errors, measure_finite
from distbench.verdict import Finding

_SAME = 1e-4
"""Share of a number by which it may differ: rounding to float32 leaves less."""
_UNITS = 8
"""Roundings of a narrower loss that may part two."""
_LOSS = "loss"
_WHY = (
    "of what train_step returns on each replica tf_keras shows the sum, and Keras 3 "
    "the mean"
)


def find_shown(evidence: Evidence) -> Iterator[Finding]:
    """The finding for a loss that `fit` shows N times as large, or as small, as it is.

    Where one device shows another one in some other way, as of batch statistics that
    each replica has for itself, the loss itself is what has to be judged.
    """
    pairs = _list_pairs(evidence).get(_LOSS, {})
    replicas = evidence.observed.replicas
    times = _find_times(evidence, [*pairs.values()])
    if times is None:
        return
    step, (shown, due) = next((s, p) for s, p in pairs.items() if p[1])
    often = f"N = {replicas} times" if times > 1 else f"1/N = 1/{replicas} of"
    yield Finding(
        code="loss-misreported",
        phase="loss",
        step=step,
        variable="",
        replicas=tuple(range(replicas)),
        ratio=times,
        error=abs(shown - due) / abs(due),
        bound=_find_share(evidence),
        explanation=(
            f"Step {step}, loss: the gradients are right, and fit shows {shown:.6g} as "
            f"'loss', which is {often} what it shows on one device, {due:.6g}: {_WHY} "
            f"(loss-misreported; ratio {times:.6g}, against one device, the global "
            "batch). Return the result of a metric, or under tf_keras the "
            "replica's share of the loss, and under Keras 3 the mean over its examples."
        ),
        confidence=1.0,
    )


def note_shown(evidence: Evidence) -> str:
    """Names other numbers that `fit` shows, and that one device shows otherwise."""
    if evidence.tier == "free":
        return ""  # it has taken steps of its own
    known = {metric.name for metric in evidence.observed.metrics} | {_LOSS}
    share = _find_share(evidence)
    found = {
        name: [*pairs.values()]
        for name, pairs in _list_pairs(evidence).items()
        if not _is_any(name, known) and not _are([*pairs.values()], 1.0, share)
    }
    if not found:
        return ""
    name, pairs = next(iter(found.items()))
    shown, due = next(pair for pair in pairs[::-1] if not _are([pair], 1.0, share))
    times = [_find_times(evidence, pairs) for pairs in found.values()]
    return (
        f"note: fit shows {shown:.6g} as '{name}', and {due:.6g} on one device"
        f"{tell_more([*found])}{f': {_WHY}' if all(times) else ''}"
    )


def _is_any(name: str, metrics: Collection[str]) -> bool:
    """Whether a number is what a metric shows.

    That of one of several outputs goes by the name of the output before its own. Its
    loss is a metric of the very name, and `kl_loss` may be any other number.
    """
    return name in metrics or any(
        name.endswith(f"_{metric}") for metric in metrics if metric != _LOSS
    )


def _find_share(evidence: Evidence) -> float:
    """Share of a number by which it may differ, in the narrowest dtype of the step."""
    names = evidence.narrowest, evidence.reference.dtypes.get("", "")
    return max(_SAME, *(_UNITS * find_roundoff(name) for name in names))


def _find_times(evidence: Evidence, pairs: list[tuple[float, float]]) -> float | None:
    """N or 1/N, where all are so many times what one device shows; None if not."""
    replicas, share = evidence.observed.replicas, _find_share(evidence)
    ways = (float(replicas), 1 / replicas) if replicas > 1 else ()
    return next((times for times in ways if _are(pairs, times, share)), None)


def _list_pairs(evidence: Evidence) -> Mapping[str, dict[int, tuple[float, float]]]:
    """By name and step: what the cluster and one device show."""
    observed, reference = evidence.observed, evidence.reference
    found = {}
    names = {key.variable for key, _ in observed.select(phase="loss")}
    for name in sorted(name for name in names if name.startswith(SHOWN)):
        shown, due = list_shown(observed, name), list_shown(reference, name)
        if shown.keys() == due.keys():
            pairs = {step: (shown[step], due[step]) for step in shown}
            found[name.removeprefix(SHOWN)] = pairs
    return found


def _are(pairs: list[tuple[float, float]], times: float, share: float) -> bool:
    """Whether all numbers are so many times those of one device, and some are not 0."""
    both = np.array(pairs, np.float64)
    if not both.size or (times != 1.0 and not np.isfinite(both).all()):
        return times == 1.0
    apart = measure_errors(both[:, 0], times * both[:, 1])
    size = measure_finite(both)
    return bool((apart <= share * size).all() and (size > 0 or times == 1.0))
