"""The cluster once more, with the right value in the place of a wrong one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from distbench.cluster import ClusterSpec
from distbench.evidence import Evidence, Tier
from distbench.fed import Fed
from distbench.observe.launching import Launch, make_payload
from distbench.observe.reading import list_reads
from distbench.observe.saved import SAVED
from distbench.observe.trainers import start_trainers
from distbench.scenario import Scenario
from distbench.target import TargetRef
from distbench.trace import STATE, Phase, Trace, Values, merge_traces
from distbench.trace.files import read_trace


def observe_corrected(
    target: TargetRef,
    scenario: Scenario,
    spec: ClusterSpec,
    tier: Tier,
    phase: Phase,
    evidence: Evidence,
    folder: Path,
    reference: Path,
    launch: Launch,
) -> Evidence:
    """Run the cluster once more, with the reference's value in place of a wrong one.

    Args:
        target: The subject.
        scenario: What to run.
        spec: Its resolved cluster spec.
        tier: The tier in which it runs.
        phase: The phase at which the reference's gradient is put in.
        evidence: The evidence of the run that was wrong.
        folder: The folder of its traces.
        reference: The folder of those of its single-device run.
        launch: How tasks are started.

    Returns:
        The evidence with what the corrected run left behind: slots, variables and
        iterations.

    Raises:
        ClusterError: The run did not get to its end.
    """
    payload = {
        **make_payload(target, scenario, spec, folder, reference),
        "tiers": [tier],
        "shards": list(evidence.reference.shards),
        "corrected": phase,
    }
    payload["reads"] = list_reads(payload, [tier])
    if scenario.restore_from:
        payload["restored"] = str(folder / SAVED)
    deadline = launch.give_time(scenario.timeout_s)
    with start_trainers(launch, scenario, spec, deadline) as trainers:
        for job in ("prepare", "train"):
            trainers.call(job, payload)
    tasks = trainers.tasks
    parts = [read_trace(folder, f"corrected-{tier}-{task}") for task in tasks]
    return put_right(evidence, merge_traces(str(spec), parts))


def put_right(evidence: Evidence, corrected: Trace) -> Evidence:
    """The evidence of a run that was wrong, with what a corrected one left behind.

    What one device was fed with is what the run that was wrong had; of a corrected run
    it says nothing.

    Args:
        evidence: Of the run that was wrong.
        corrected: What the cluster recorded when the right value was put in.
    """
    left = Values(corrected.values).keep(lambda key: key.phase in STATE)
    return replace(evidence, observed=replace(corrected, values=left), fed=Fed())
