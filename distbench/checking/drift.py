"""What kernels of GPUs add up in another order each time, and what is wrong.

Op determinism is off where users train, so a check begins without it. What is found
there is run once more with it, and so is what could not be told, or hides behind what
one device does not repeat itself. What is wrong then is wrong. If nothing is, and the
first run saw what the second one saw but for rounding, something was added up in
another order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from distbench.checking.again import First, Judged, Way
from distbench.checking.runs import OPEN
from distbench.cluster import ClusterSpec
from distbench.compare.arrays.likeness import find_half
from distbench.compare.recorded.offline import compare_traces
from distbench.compare.recorded.places import Place
from distbench.compare.state.measured_noise import KERNEL_ROUNDINGS
from distbench.diagnose.judgement import Judgement
from distbench.evidence import Evidence
from distbench.scenario import Scenario
from distbench.trace import GRADIENTS
from distbench.trace.numbers import measure_finite, take_numbers
from distbench.verdict import Finding, Run, Status

_RAISED = ("raises", "refused")
"""Codes of runs that compared nothing: some ops have no kernel that repeats bits."""


def may_drift(spec: ClusterSpec, environment: Mapping[str, Any]) -> bool:
    """Whether ops of a run may have given other bits than they would a second time.

    Args:
        spec: Its resolved cluster spec.
        environment: What its tasks said of theirs.
    """
    settings = environment.get("settings", {})
    return spec.device == "gpu" and not settings.get("op_determinism", False)


def is_settled(judgement: Judgement, evidence: Evidence) -> bool:
    """Whether a run passes, and by bounds that leave half of the digits of gradients.

    One device that draws lots, as where several values are written to one place, leaves
    bounds in which any gradient may hide.
    """
    if judgement.status is not Status.PASS:
        return False
    half = find_half(evidence.narrowest or "float32")
    sizes: dict[tuple[int, str], float] = {}
    for key, value in evidence.observed.values.items():
        if key.phase in GRADIENTS:
            place = key.step, key.phase
            size = measure_finite(take_numbers(value))
            sizes[place] = max(sizes.get(place, 0.0), size)
    return not any(
        pair.phase in GRADIENTS
        and pair.relation == "reference"
        and 0 < half * sizes.get((pair.step, pair.phase), math.inf) < pair.bound
        for pair in judgement.compared
    )


def find_roundings(seen: Evidence, steady: Evidence) -> tuple[Place, ...] | None:
    """Where two runs of one scenario differ, if it is by rounding alone.

    What a run is compared with is chosen by what one device shows, so a rounding may
    make an error of any size of it; what the cluster itself did may not.

    Args:
        seen: What was seen without op determinism.
        steady: What was seen with it.

    Returns:
        None where more than rounding differs, as where a collective returned garbage.
    """
    narrow = seen.narrowest or None
    places = compare_traces(seen.observed, steady.observed, narrow=narrow).places
    apart = tuple(place for place in places if place.status != "equal")
    return apart if all(map(_is_rounding, apart)) else None


def _is_rounding(place: Place) -> bool:
    # An element that is what is left of a sum may be less than that sum's rounding.
    return place.status == "near" or (
        place.status == "different" and place.likeness.ulps <= KERNEL_ROUNDINGS
    )


def tell_drift(first: Status, run: Run, apart: Sequence[Place] | None) -> Run | None:
    """What a run with op determinism makes of what a run without it does not settle.

    Args:
        first: How the run without it ended.
        run: The run with it.
        apart: Where the two differ, if it is by rounding alone; see `find_roundings`.

    Returns:
        The run that stands for both, or None if the first one stands.
    """
    if run.status is Status.FAIL:
        is_compared = all(finding.code not in _RAISED for finding in run.findings)
        return run if is_compared else None
    if run.status not in OPEN or apart is None:
        return None
    if run.status is not Status.PASS:
        return None if first is Status.FAIL else run  # it proves nothing right
    if not apart:
        return run  # one device did not repeat itself, which judges and is not judged
    return replace(run, findings=(_describe(apart), *run.findings))


def _describe(apart: Sequence[Place]) -> Finding:
    """The warning: where it begins, and how far it goes there."""
    first = apart[0]
    step, phase, variable = first.key.step, first.key.phase, first.key.variable
    alike = [
        place
        for place in apart
        if (place.key.step, place.key.phase, place.key.variable)
        == (step, phase, variable)
    ]
    error = max(place.likeness.error for place in alike)
    return Finding(
        code="nondeterministic-update",
        phase=phase,
        step=step,
        variable=variable,
        replicas=tuple(sorted({place.key.replica for place in alike})),
        ratio=first.likeness.ratio,
        error=error,
        bound=0.0,
        explanation=(
            f"Step {step}, {phase} of '{variable}': nothing is found wrong where "
            "TensorFlow has ops repeat their bits, and what differs from that is "
            f"rounding, from here on ({error:.3g} at most), so something is added up "
            "in an order that changes from run to run. Call "
            "tf.config.experimental.enable_op_determinism() to have it repeat itself."
        ),
        confidence=1.0,
        warning=True,
        variables=(variable,),
    )


def _have_bits_repeat(scenario: Scenario, _: float) -> Scenario:
    return replace(scenario, op_determinism=True)


def _is_open(first: First) -> bool:
    drifts = may_drift(first.item.spec, first.seen.environment)
    return drifts and not is_settled(first.judgement, first.evidence)


def _tell(first: First, again: Judged) -> Run | None:
    # Which may be judged by numbers that it was given, and these by other bits.
    other = again.own
    apart = None if other is None else find_roundings(first.evidence, other)
    return tell_drift(first.judgement.status, again.run, apart)


STEADY = Way(
    words="with op determinism",
    change=_have_bits_repeat,
    is_open=_is_open,
    tell=_tell,
)
