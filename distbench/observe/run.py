"""Runs one scenario: single-device reference, cluster, replay; returns the evidence.

This is where scenario, launcher and worker program meet. Nothing is judged here.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

from distbench.cluster import ClusterSpec
from distbench.errors import BadInputError
from distbench.evidence import Tier
from distbench.late import Late, Looks, TooFewStepsError
from distbench.launch.deadline import Deadline
from distbench.launch.failure import TaskFailedError
from distbench.launch.group import Group
from distbench.observe.alone import find_own_failure
from distbench.observe.errand import Errand
from distbench.observe.flight import observe_flight
from distbench.observe.injuries import list_injuries, tell_injuries
from distbench.observe.launching import Launch
from distbench.observe.observation import (
    Observation,
    make_observation,
    measure_disk,
    name_logs,
    observe_failure,
)
from distbench.observe.one_device import OneDevice
from distbench.observe.preparing import prepare_both
from distbench.observe.reading import list_reads, read_evidence
from distbench.observe.saved import train_before
from distbench.observe.trainers import start_trainers
from distbench.observe.uncut import observe_uncut
from distbench.scenario import Scenario
from distbench.target import TargetRef, target_from_json
from distbench.trace.shelf import Shelf


def observe(
    target: TargetRef,
    scenario: Scenario,
    spec: ClusterSpec,
    tiers: tuple[Tier, ...],
    launch: Launch,
    one: OneDevice | None = None,
    *,
    looks: Looks = "",
) -> Observation:
    """Run a scenario on one device and on its cluster.

    Args:
        target: The subject.
        scenario: What to run.
        spec: Its resolved cluster spec.
        tiers: Which tiers; those that the workload cannot have are left out.
        launch: How tasks are started.
        one: Has the single-device run, or will have it; None is one for this scenario
            alone.
        looks: Whether one device looks for what is late, and what becomes of it.

    Raises:
        BadInputError: The subject fails on one device already.
        TooFewStepsError: Something is late, and that is heeded.
        ClusterError: The bench's own part failed.
    """
    if one is None:
        with closing(OneDevice(launch)) as own:
            return observe(target, scenario, spec, tiers, launch, own, looks=looks)
    if scenario.in_flight > 1:
        return observe_flight(target, scenario, spec, launch, one)
    errand = Errand.begin(target, scenario, spec, launch)
    errand = replace(errand, reference=one.find_folder(errand.folder))
    payload = errand.make_payload(tiers=list(tiers), rerun=launch.rerun, looks=looks)
    control: TargetRef | None = None
    found: tuple[Tier, ...] = ()
    injury = ""
    with one.serve(errand) as alone, ExitStack() as clusters:
        environment = dict(next(iter(alone.first.values()))["environment"])
        try:
            if scenario.restore_from:
                payload = {**payload, **train_before(errand)}
            trainers = clusters.enter_context(start_trainers(errand))
            cluster = trainers.cluster
            answer, wait_prepared = prepare_both(one, trainers, errand, payload)
            control = target_from_json(answer["control"])
            found = tuple(answer["tiers"])
            if not found:
                return Observation(environment=environment)
            payload = {**payload, "shards": answer["shards"], "tiers": list(found)}
            one.begin_probes(errand, payload)
            wait_prepared()
            cluster.injure(*list_injuries(scenario, launch))
            reads = {**payload, "reads": list_reads(errand, found)}
            try:
                trainers.call("train", reads)
            finally:
                injury = tell_injuries(scenario, cluster.injury)
        except TaskFailedError as raised:
            one.give_up()
            clusters.close()
            is_before = scenario.restore_from and "restored" not in payload
            if is_before and raised.kind == "subject":
                # Nothing is known of one device yet, which may fail alike.
                earlier = ClusterSpec.parse(scenario.restore_from)
                before = observe(
                    target, scenario.trained_before, earlier, tiers, launch
                )
                if before.failure is not None:
                    return before
                before.clear_arrays()
            return observe_failure(
                find_own_failure(raised, errand, payload),
                errand,
                control=control,
                environment=environment,
                tiers=found,
                injury=injury,
            )
        # They end while one device follows what they did.
        cluster.dismiss()
        answer = {**answer, **one.finish_probes()}
        late = Late(**answer["late"])
        if late.steps and looks == "heeded":
            Shelf(errand.folder).clear()
            raise TooFewStepsError(late, errand.deadline.spent_s)
        replies = _replay(alone, payload, errand.deadline)
        if replies["spent"]:
            one.replace()
        uncut = observe_uncut(errand, payload, found) if scenario.partitioner else {}

    return make_observation(
        errand,
        evidence={
            tier: read_evidence(errand, tier, answer, replies, uncut=uncut.get(tier))
            for tier in found
        },
        control=control,
        disk_bytes=sum(map(measure_disk, {errand.folder, errand.reference})),
        environment=environment,
        logs=name_logs(alone, cluster),
        tiers=found,
        injury=injury,
        late=late,
    )


def _replay(
    alone: Group, payload: Mapping[str, Any], deadline: Deadline
) -> Mapping[str, Any]:
    """What one device answers that follows what the tasks of a cluster did.

    Raises:
        BadInputError: They named their variables differently.
        ClusterError: The bench's own part failed.
    """
    try:
        return next(iter(alone.call("replay", payload, deadline=deadline).values()))
    except TaskFailedError as error:
        if error.kind == "input":
            raise BadInputError(error.message) from error
        raise
