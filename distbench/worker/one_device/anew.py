"""Initial values that no seed governs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from distbench.trace import INITIAL, Trace
from distbench.worker.one_device.reference import Reference
from distbench.worker.process.chance import seed_chance
from distbench.worker.stepping.session import Session


def find_drawn_anew(
    observed: Trace, reference: Reference, build: Callable[[], Session]
) -> list[str]:
    """Variables with another start on the cluster, and in a second build here.

    Args:
        observed: What the cluster did.
        reference: The first build on one device.
        build: Builds the subject once more.
    """
    initial = reference.initial
    differing = {
        key.variable
        for key, value in observed.select(step=INITIAL, phase="variable")
        if (start := initial.get((key.variable, 0))) is not None
        and not np.array_equal(np.asarray(value), start, equal_nan=True)
    }
    if not differing:
        return []
    seed_chance(reference.scenario.seed)
    again = build()
    state = again.read_state()
    # What was restored since is no value of a build.
    built = reference.built
    # Keras numbers the layers of a process, so that the paths are other ones.
    paths = zip(reference.session.variables, again.variables, strict=False)
    return sorted(
        old.path
        for old, new in paths
        if old.path in differing
        and not np.array_equal(state[new.path, 0], built[old.path, 0], equal_nan=True)
    )
