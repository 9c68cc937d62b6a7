"""A scenario's first steps once more, with a look at what losses are computed of."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from distbench.cluster import ClusterSpec
from distbench.evidence import Inside, Tier
from distbench.observe.launching import Launch, make_payload
from distbench.observe.preparing import prepare_both, start_both
from distbench.observe.reading import list_reads
from distbench.scenario import Scenario
from distbench.target import TargetRef
from distbench.trace import merge_traces
from distbench.trace.files import read_trace

_TIER: Tier = "bounded"
"""Each step starts from what one device has: what differs, this step made differ."""


def observe_intermediates(
    target: TargetRef,
    scenario: Scenario,
    spec: ClusterSpec,
    last_step: int,
    launch: Launch,
    *,
    of_steps: bool = False,
) -> Inside:
    """Run a scenario up to a step on one device and on its cluster.

    Args:
        target: The subject.
        scenario: What to run.
        spec: Its resolved cluster spec.
        last_step: The last step that is wanted.
        launch: How tasks are started.
        of_steps: Whether to look also at what moves variables.

    Returns:
        What was seen: intermediate values as values of the loss, under their own names,
        and a note of where each is made. None are there if XLA compiles the step.

    Raises:
        BadInputError: The subject fails on one device.
        ClusterError: A task failed.
    """
    deadline = launch.give_time(scenario.timeout_s)
    folder = launch.directory.make_folder(f"inside-{time.monotonic_ns()}")
    scenario = replace(scenario, steps=last_step + 1)
    payload: Mapping[str, Any] = {
        **make_payload(target, scenario, spec, folder),
        "tiers": [_TIER],
        "inside": "steps" if of_steps else "losses",
    }
    with start_both(launch, scenario, spec, deadline) as (one, trainers):
        answer, wait_prepared = prepare_both(one, trainers, scenario, payload, target)
        wait_prepared()
        payload = {**payload, "shards": answer["shards"]}
        trainers.call("train", {**payload, "reads": list_reads(payload, [_TIER])})
    parts = [read_trace(folder, f"observed-{_TIER}-{t}") for t in trainers.tasks]
    return Inside(
        reference=read_trace(folder, f"reference-{_TIER}"),
        observed=merge_traces(str(spec), parts),
    )
