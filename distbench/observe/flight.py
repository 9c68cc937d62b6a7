"""Runs one scenario with steps in flight; returns what was seen."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from distbench.cluster import ClusterSpec
from distbench.evidence import Tier
from distbench.flight import Flight
from distbench.launch.failure import TaskFailedError
from distbench.observe.alone import find_own_failure
from distbench.observe.errand import Errand
from distbench.observe.injuries import list_injuries
from distbench.observe.launching import Launch
from distbench.observe.observation import (
    Observation,
    make_observation,
    measure_disk,
    name_logs,
    observe_failure,
)
from distbench.observe.one_device import OneDevice
from distbench.observe.trainers import start_trainers
from distbench.scenario import Scenario
from distbench.target import TargetRef, target_from_json
from distbench.trace.files import read_trace


def observe_flight(
    target: TargetRef,
    scenario: Scenario,
    spec: ClusterSpec,
    launch: Launch,
    one: OneDevice,
) -> Observation:
    """Run a scenario with steps in flight on one device and on its cluster.

    One device says first where each round starts, and at last what it may have come to
    in the orders that the cluster's steps can have had.

    Args:
        target: The subject.
        scenario: What to run.
        spec: Its resolved cluster spec.
        launch: How tasks are started.
        one: Has a task that has computed nothing yet.

    Raises:
        BadInputError: The subject fails on one device already.
        ClusterError: The bench's own part failed.
    """
    errand = Errand.begin(target, scenario, spec, launch)
    payload = errand.make_payload()
    control: TargetRef | None = None
    tier: Tier = "bounded"
    injury = ""
    with one.serve(errand) as alone, ExitStack() as clusters:
        environment = dict(next(iter(alone.first.values()))["environment"])
        try:
            trainers = clusters.enter_context(start_trainers(errand))
            cluster = trainers.cluster
            wait_prepared = trainers.submit("prepare", payload)
            answer = one.plan_rounds(errand, payload)
            control = target_from_json(answer["control"])
            tier = "exact" if answer["commutes"] else "bounded"
            wait_prepared()
            cluster.injure(*list_injuries(scenario, launch))
            try:
                trainers.call("fly", payload)
            finally:
                injury = cluster.injury
        except TaskFailedError as raised:
            clusters.close()
            return observe_failure(
                find_own_failure(raised, errand, payload),
                errand,
                control=control,
                environment=environment,
                tiers=(tier,),
                injury=injury,
            )
        # They end while one device follows what they did.
        cluster.dismiss()
        followed = alone.call("follow_rounds", payload, deadline=errand.deadline)
    return make_observation(
        errand,
        flight=_read_flight(errand, tier, next(iter(followed.values()))),
        control=control,
        disk_bytes=measure_disk(errand.folder),
        environment=environment,
        logs=name_logs(alone, cluster),
        tiers=(tier,),
        injury=injury,
    )


def _read_flight(errand: Errand, tier: Tier, answer: Mapping[str, Any]) -> Flight:
    folder, left_out = errand.folder, answer["left_out"]
    return Flight(
        tier=tier,
        in_flight=errand.scenario.in_flight,
        observed=read_trace(folder, "flown"),
        starts=read_trace(folder, "starts"),
        orders=tuple(
            read_trace(folder, f"order-{number}") for number in range(answer["orders"])
        ),
        lost={place: read_trace(folder, f"lost-{place}") for place in left_out},
        again={place: read_trace(folder, f"again-{place}") for place in left_out},
        stale=tuple(
            read_trace(folder, f"stale-{number}") for number in range(answer["stale"])
        ),
    )
