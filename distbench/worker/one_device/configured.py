"""What one device makes of the replicas' sums with the settings that they have."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from distbench.evidence import Tier
from distbench.trace import Trace, TraceKey, Values
from distbench.trace.settings import Setting, list_other_settings
from distbench.worker.families.other_settings import change_settings
from distbench.worker.one_device.feeder import Feeder
from distbench.worker.process.failures import SubjectError


def configure_alike(
    feeder: Feeder, tier: Tier, recorded: Trace, observed: Trace
) -> Trace | None:
    """Feed the observed reduced gradients to optimizers that are set as the cluster's.

    None where they are set so already. What asks for state that one device does not
    have, such as another slot, cannot be set later: a note has the paths of what was
    not tried (`untried`).

    Args:
        feeder: Runs the reference's steps.
        tier: Which one.
        recorded: What one device recorded in it.
        observed: What the cluster recorded.
    """
    session = feeder.reference.session
    of_replicas: dict[int, dict[str, Setting]] = {}
    for other in list_other_settings(observed, recorded):
        for replica in other.replicas:
            of_replicas.setdefault(replica, {})[other.path] = other.seen
    if not of_replicas:
        return None
    untried = {path for settings in of_replicas.values() for path in settings}
    values: Values[Any] = session.make_values()
    while of_replicas:
        settings = next(iter(of_replicas.values()))
        alike = {r for r, others in of_replicas.items() if others == settings}
        own = Values(observed.values).keep(partial(_is_of, alike))
        with (
            suppress(SubjectError),
            change_settings(session.optimizers, settings) as taken,
            feeder.trace_apart(),
        ):
            fed = feeder.feed(tier, replace(observed, values=own), "reduced_gradient")
            values.update(fed.values)
            untried -= taken
        of_replicas = {r: of_replicas[r] for r in of_replicas if r not in alike}
    return feeder.reference.make_trace("configured", values, untried=sorted(untried))


def _is_of(replicas: Collection[int], key: TraceKey) -> bool:
    return key.replica in replicas
