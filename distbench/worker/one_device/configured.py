"""What one device makes of the replicas' sums with the settings that they have."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from distbench.evidence import Tier
from distbench.trace import UPDATED, Trace, TraceKey, Values
from distbench.trace.settings import Setting, list_other_settings
from distbench.worker.families.other_settings import change_settings
from distbench.worker.one_device.feeder import Feeder
from distbench.worker.process.failures import SubjectError
from distbench.worker.state.values import are_near, have_same_bits

_LED = ("applied_gradient", *UPDATED)


def configure_alike(
    feeder: Feeder, tier: Tier, recorded: Trace, observed: Trace, followed: Trace
) -> Trace | None:
    """Feed the observed reduced gradients to optimizers that are set as the cluster's.

    None where they are set so already. What asks for state that one device does not
    have, such as another slot, cannot be set later: a note has the paths of what was
    not tried (`untried`).

    Each process may have settings of its own, and each time all steps are traced anew.
    So it is not done for replicas whose state is right, nor for what is as wrong with
    the settings of others: then it is nothing that settings explain.

    Args:
        feeder: Runs the reference's steps.
        tier: Which one.
        recorded: What one device recorded in it.
        observed: What the cluster recorded.
        followed: What follows from its reduced gradients with one device's settings.
    """
    session = feeder.reference.session
    groups = list(_list_groups(recorded, observed))
    if not groups:
        return None
    asked, tried, left = set[str](), set[str](), set[str]()
    values: Values[Any] = session.make_values()
    for settings, replicas in groups:
        given = Values(observed.values).keep(partial(_is_of, replicas))
        own = replace(observed, values=given)
        wrong = _list_wrong(own, followed)
        if not wrong:
            continue
        asked |= settings.keys()
        if wrong.keys() <= left:
            continue
        with (
            suppress(SubjectError),
            change_settings(session.optimizers, settings) as taken,
        ):
            if not taken:
                continue
            with feeder.trace_apart():
                fed = feeder.feed(tier, own, "reduced_gradient")
            values.update(fed.values)
            tried |= taken
            moved = _list_wrong(fed, followed)
            left |= {p for p, is_plain in wrong.items() if is_plain} - moved.keys()
    untried = sorted(asked - tried)
    return feeder.reference.make_trace("configured", values, untried=untried)


def _list_groups(
    recorded: Trace, observed: Trace
) -> Iterator[tuple[dict[str, Setting], Collection[int]]]:
    """The settings that are others, and the replicas that have the same of them."""
    of_replicas: dict[int, dict[str, Setting]] = {}
    for other in list_other_settings(observed, recorded):
        for replica in other.replicas:
            of_replicas.setdefault(replica, {})[other.path] = other.seen
    while of_replicas:
        settings = next(iter(of_replicas.values()))
        alike = {r for r, others in of_replicas.items() if others == settings}
        yield settings, alike
        of_replicas = {r: of_replicas[r] for r in of_replicas if r not in alike}


def _list_wrong(own: Trace, followed: Trace) -> dict[str, bool]:
    """State of a run that does not follow, and whether that is plainly no rounding."""
    unshared = {info.path for info in own.variables if not info.synchronised}
    found: dict[str, bool] = {}
    for key, value in Values(own.values).keep(lambda key: key.phase in _LED).items():
        due = followed.get(key)
        if due is None or key.variable in unshared or have_same_bits(value, due):
            continue
        is_near = value.shape == due.shape and are_near(due, value, None)
        found[key.variable] = found.get(key.variable, False) or not is_near
    return found


def _is_of(replicas: Collection[int], key: TraceKey) -> bool:
    return key.replica in replicas
