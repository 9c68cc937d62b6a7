"""A scenario's first steps once more, with a look at what losses are computed of."""

from __future__ import annotations

from dataclasses import replace

from distbench.cluster import ClusterSpec
from distbench.evidence import Inside, Tier
from distbench.observe.errand import Errand
from distbench.observe.launching import Launch
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
    scenario = replace(scenario, steps=last_step + 1)
    errand = Errand.begin(target, scenario, spec, launch, "inside")
    inside = "steps" if of_steps else "losses"
    payload = errand.make_payload(tiers=[_TIER], inside=inside)
    with start_both(errand) as (one, trainers):
        answer, wait_prepared = prepare_both(one, trainers, errand, payload)
        wait_prepared()
        payload = {**payload, "shards": answer["shards"]}
        trainers.call("train", {**payload, "reads": list_reads(errand, [_TIER])})
    folder = errand.folder
    parts = [read_trace(folder, f"observed-{_TIER}-{t}") for t in errand.trainers]
    return Inside(
        reference=read_trace(folder, f"reference-{_TIER}"),
        observed=merge_traces(str(spec), parts),
    )
