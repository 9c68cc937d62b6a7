"""What one device makes of variables that are N times as large: N times their decay."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from distbench.evidence import Tier
from distbench.trace import Phase, Trace, Value, Values
from distbench.worker.one_device.feeder import Feeder
from distbench.worker.one_device.held_against import change_gradients
from distbench.worker.process.failures import SubjectError
from distbench.worker.state.values import count_digits, multiply
from distbench.worker.taps.collect import State

LEAST = 2.0**-40
"""Of such a share of a gradient no state keeps a digit; 0 has no norm to divide by."""


def decay_again(
    feeder: Feeder,
    tier: Tier,
    given: Trace,
    phase: Phase,
    *,
    times: int,
    kept: Collection[str] = (),
) -> tuple[Trace, ...]:
    """Take each step from variables that are some times as large; two traces of state.

    A rule sees a variable in its decay, so that counts as often, whatever else is made
    of it: a gradient, a share of a norm. What the step adds is added to the variables
    as they were. In the second trace all that belongs to the variables is as large,
    for rules that keep their steps. A note says so (`whole`), another one how large it
    is (`times`). Empty where next to no gradient leads to next to the same.

    Args:
        feeder: Runs the reference's steps.
        tier: Which one.
        given: The gradients.
        phase: Where they are put in.
        times: How many decays to ask about.
        kept: State of the model that follows from its gradients.
    """
    trained = {key.variable for key in given.values if key.phase == phase}
    infos = feeder.reference.session.variables
    others = {v.path for v in infos if v.role == "slot" and v.of} | set(kept)
    if times < 2 or not trained:
        return ()

    def feed(fed: Trace, paths: Collection[str], *, whole: bool = False) -> Trace:
        move = partial(_enlarge, paths, times)
        return feeder.feed(tier, fed, phase, move=move, times=times, whole=whole)

    with suppress(SubjectError):
        # Next to none, as those of one replica.
        shrink = partial(multiply, factor=LEAST)
        still = replace(change_gradients(given, shrink, phase, 0), replicas=1)
        if not _are_apart(feed(still, ()), feed(still, trained), times):
            return ()
        return feed(given, trained), feed(given, trained | others, whole=True)
    return ()


def _enlarge(paths: Collection[str], times: int, _: int, before: State) -> State:
    return {
        key: multiply(array, times) if key[0] in paths else array
        for key, array in before.items()
    }


def _are_apart(left: Trace, right: Trace, times: int) -> bool:
    """Whether variables are farther apart than rounding of the larger ones leaves."""
    after: Mapping[Any, Value] = Values(left.values).keep(
        lambda key: key.phase == "variable"
    )
    for key, value in after.items():
        other = right.get(key)
        if other is None:
            continue
        near, far = (np.asarray(v, np.float64) for v in (value, other))
        size = times * float(np.max(np.abs(near), initial=0.0))
        unit = 2.0 ** -count_digits(np.asarray(value).dtype.name)
        if float(np.max(np.abs(near - far), initial=0.0)) > 4 * unit * size:
            return True
    return False
