"""What kernels of GPUs add up in another order each time, and what is wrong.

Op determinism is off where users train, so a check begins without it. What is found
there is run once more with it: what is left then is wrong, and what was no more than
rounding and is gone was the order in which something was added up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from distbench.checking.runs import OPEN
from distbench.cluster import ClusterSpec
from distbench.compare.likeness import find_half
from distbench.compare.values import measure_size
from distbench.details import Compared
from distbench.trace import GRADIENTS, SparseRows, Trace
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


def is_rounding(compared: Iterable[Compared], observed: Trace) -> bool:
    """Whether all that is wrong leaves half of the digits of what was seen there.

    A sum in another order does; a collective that returned garbage does not, even if it
    never does so again.
    """
    sizes: dict[tuple[int, str, str], float] = {}
    for key, value in observed.values.items():
        numbers = value.values if isinstance(value, SparseRows) else value
        place = _name_place(key.step, key.phase, key.variable)
        sizes[place] = max(sizes.get(place, 0.0), measure_size(np.asarray(numbers)))
    for pair in compared:
        if not pair.wrong:
            continue
        size = sizes.get(_name_place(pair.step, pair.phase, pair.variable), 0.0)
        half = find_half(observed.dtypes.get(pair.variable, "float32"))
        if not pair.error <= half * size:
            return False
    return True


def _name_place(step: int, phase: str, variable: str) -> tuple[int, str, str]:
    """What shares its size: a sum may cancel, and what it is made of counts as well."""
    return step, "gradient" if phase in GRADIENTS else phase, variable


def tell_drift(found: Finding, run: Run, *, seconds: float, small: bool) -> Run | None:
    """What a run with op determinism makes of what was found without it.

    Args:
        found: The first finding.
        run: The run with it.
        seconds: How long that without it took.
        small: Whether all that was wrong there is no more than rounding.

    Returns:
        The run that stands for both, or None if what was found stands.
    """
    whole = replace(run, seconds=run.seconds + seconds)
    if run.status is Status.FAIL:
        is_compared = all(finding.code not in _RAISED for finding in run.findings)
        return whole if is_compared else None
    if run.status not in OPEN or not small:
        return None
    text = (
        f"Step {found.step}, {found.phase} of '{found.variable}': it is off by "
        f"{found.error:.3g} at most, and right where TensorFlow has ops repeat their "
        "bits, so something on the way there is added up in an order that changes from "
        "run to run. Call tf.config.experimental.enable_op_determinism() to have it "
        "repeat itself."
    )
    drift = replace(
        found,
        code="nondeterministic-update",
        explanation=text,
        warning=True,
        # No number of one run can be shown in another one.
        outcome=None,
    )
    return replace(whole, findings=(drift, *run.findings))
