"""Runs one scenario with steps in flight; returns what was seen."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from distbench.cluster import ClusterSpec
from distbench.evidence import Tier
from distbench.flight import Flight
from distbench.launch.failure import TaskFailedError
from distbench.observe.alone import find_own_failure
from distbench.observe.launching import (
    Launch,
    list_injuries,
    make_opening,
    make_payload,
)
from distbench.observe.observation import Observation, measure_disk, name_logs
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
    deadline = launch.give_time(scenario.timeout_s)
    folder = launch.directory.make_folder(f"{scenario.id}-{time.monotonic_ns()}")
    payload = {
        **make_payload(target, scenario, spec, folder),
    }
    control: TargetRef | None = None
    tier: Tier = "bounded"
    injury = ""

    opening = make_opening(scenario, deadline)
    with one.serve(opening, launch.find_one(spec)) as alone, ExitStack() as clusters:
        environment = dict(next(iter(alone.first.values()))["environment"])
        try:
            trainers = clusters.enter_context(
                start_trainers(launch, scenario, spec, deadline)
            )
            cluster = trainers.cluster
            wait_prepared = trainers.submit("prepare", payload)
            answer = one.plan_rounds(payload, target, deadline)
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
            error = find_own_failure(raised, launch, scenario, spec, payload, deadline)
            return Observation(
                failure=error,
                control=control,
                seconds=deadline.spent_s,
                environment=environment,
                folder=folder,
                logs={str(task): text for task, text in error.log_tails.items()},
                tiers=(tier,),
                injury=injury,
            )
        # They end while one device follows what they did.
        cluster.dismiss()
        followed = alone.call("follow_rounds", payload, deadline=deadline)
    return Observation(
        flight=_read_flight(folder, scenario, tier, next(iter(followed.values()))),
        control=control,
        seconds=deadline.spent_s,
        disk_bytes=measure_disk(folder),
        environment={**environment, "python": sys.version.split()[0]},
        folder=folder,
        logs=name_logs(alone, cluster),
        tiers=(tier,),
        injury=injury,
    )


def _read_flight(
    folder: Path, scenario: Scenario, tier: Tier, answer: Mapping[str, Any]
) -> Flight:
    left_out = answer["left_out"]
    return Flight(
        tier=tier,
        in_flight=scenario.in_flight,
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
