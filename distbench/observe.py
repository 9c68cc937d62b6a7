"""Runs one scenario: single-device reference, cluster, replay; returns the evidence.

This is where scenario, launcher and worker program meet. Nothing is judged here.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from distbench.cluster import ClusterSpec, Task
from distbench.errors import BadInputError, ClusterError
from distbench.evidence import Evidence, Examples, Tier
from distbench.launch.failure import TaskFailedError
from distbench.launch.group import Group
from distbench.launch.rundir import RunDirectory
from distbench.launch.start import Job, start_group
from distbench.launch.surroundings import Start
from distbench.scenario import PIPELINE, Scenario, scenario_to_json
from distbench.target import TargetRef, target_from_json, target_to_json
from distbench.trace import Phase, merge_traces, read_trace

ENTRY = "distbench.worker.main:run_task"
PRELOADS = ("tensorflow", "tf_keras", "distbench.worker.main")
"""Modules that the fork server imports for all tasks: none of them runs an op."""
_ONE = ClusterSpec(kind="one", device="cpu")
_OPEN_S = 60.0
_LEFT_BEHIND = ("slot", "variable", "iterations")


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What became of a scenario.

    Attributes:
        evidence: By tier, where the run got to its end.
        failure: The task that failed on the cluster, if one did.
        seconds: Wall time.
        environment: Versions, devices and settings of the tasks.
        control: The stock optimizer of the subject's family.
        folder: Where the traces are.
        tiers: Those that the subject can have; empty where that is not known.
    """

    evidence: Mapping[Tier, Evidence] = field(default_factory=dict)
    failure: TaskFailedError | None = None
    seconds: float = 0.0
    environment: Mapping[str, Any] = field(default_factory=dict)
    control: TargetRef | None = None
    folder: Path | None = None
    tiers: tuple[Tier, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How the tasks of a check are started.

    Attributes:
        directory: Folder of the check; every scenario gets a subfolder.
        keras: `legacy` or `3`; None keeps the user's `TF_USE_LEGACY_KERAS`.
        jit: Whether XLA compiles; None leaves it to TensorFlow.
        start: `fork` or `spawn`; None takes what is safe here.
        log: Told what the user should know.
        collective_s: How long a worker waits for the others in a collective; None is
            for ever. With a deadline a run that hangs says where, and every step's
            part of a trace is written at once.
    """

    directory: RunDirectory
    keras: str | None = None
    jit: bool | None = None
    start: Start | None = None
    log: Callable[[str], None] = lambda _: None
    collective_s: float | None = None

    def start_cluster(self, spec: ClusterSpec, first: Job) -> Group:
        """Start the tasks of a cluster and run their first job."""
        environment = {"TF_CPP_MIN_LOG_LEVEL": "3", "GRPC_FAIL_FAST": "use_caller"}
        if self.keras is not None:
            environment["TF_USE_LEGACY_KERAS"] = "1" if self.keras == "legacy" else "0"
        if self.jit:
            # XLA leaves CPUs alone unless it is told otherwise before it starts.
            flags = os.environ.get("TF_XLA_FLAGS", "")
            environment["TF_XLA_FLAGS"] = f"{flags} --tf_xla_cpu_global_jit".strip()
        if spec.device == "cpu":
            # Keeps TensorFlow from looking for a driver that nobody will use.
            environment["CUDA_VISIBLE_DEVICES"] = "-1"
        return start_group(
            spec,
            run_directory=self.directory,
            entry=ENTRY,
            preload=PRELOADS,
            environment=environment,
            environment_by_task=_assign_gpus(spec),
            start=self.start,
            first=first,
            log=self.log,
        )


def start_one(launch: Launch, seed: int, jit: bool | None) -> Group:
    """A single-device task, for what is asked of one device."""
    return launch.start_cluster(_ONE, _make_opening(seed, jit))


def describe_subject(target: TargetRef, one: Group) -> tuple[str, bool]:
    """Load the subject in a single-device task and say what kind it is.

    Returns:
        The kind, and whether the task has run nothing of the subject but its import,
        so that a reference may be computed in it.
    """
    try:
        answers = one.call(
            "describe", {"target": target_to_json(target)}, timeout_s=_OPEN_S
        )
    except TaskFailedError as error:
        raise translate_failure(error, target) from error
    answer = next(iter(answers.values()))
    return str(answer["kind"]), bool(answer["is_fresh"])


def _make_opening(
    seed: int, jit: bool | None, collective_s: float | None = None
) -> Job:
    payload = {"seed": seed, "jit": jit, "collective_s": collective_s}
    return Job(name="open", payload=payload, timeout_s=_OPEN_S)


def observe(
    target: TargetRef,
    scenario: Scenario,
    spec: ClusterSpec,
    tiers: tuple[Tier, ...],
    launch: Launch,
    one: Group | None = None,
) -> Observation:
    """Run a scenario on one device and on its cluster.

    Args:
        target: The subject.
        scenario: What to run.
        spec: Its resolved cluster spec.
        tiers: Which tiers; those that the workload cannot have are left out.
        launch: How tasks are started.
        one: A single-device task that has computed nothing yet; it is ended here.

    Raises:
        BadInputError: The subject fails on one device already.
        ClusterError: The bench's own part failed.
    """
    start_s = time.monotonic()
    deadline_s = start_s + scenario.timeout_s
    folder = launch.directory.make_folder(f"{scenario.id}-{time.monotonic_ns()}")
    trainers = _list_trainers(spec)
    payload = {
        "target": target_to_json(target),
        "scenario": scenario_to_json(scenario),
        "folder": str(folder),
        "replicas": spec.replicas,
        "tiers": list(tiers),
        "cluster": str(spec),
        "tasks": [str(task) for task in trainers],
        "partly": launch.collective_s is not None,
    }
    opening = _make_opening(scenario.seed, scenario.jit, launch.collective_s)

    def left() -> float:
        return max(0.1, deadline_s - time.monotonic())

    control: TargetRef | None = None
    found: tuple[Tier, ...] = ()
    with one or launch.start_cluster(_ONE, opening) as one:
        environment = dict(next(iter(one.first.values()))["environment"])
        try:
            if scenario.restore_from:
                saved = _train_before(target, scenario, folder, launch, left)
                payload = {**payload, **saved}
            with launch.start_cluster(spec, opening) as cluster:
                if scenario.workload == PIPELINE:
                    # One device trains on what the replicas got.
                    cluster.call("read", payload, timeout_s=left(), tasks=trainers)
                # Building and tracing needs no reference, so both go on at once. What
                # fails on one device already is said of that, not of the cluster.
                wait_prepared = cluster.submit(
                    "prepare", payload, timeout_s=left(), tasks=trainers
                )
                answer = _call_reference(one, payload, target, left())
                if answer["control"] is not None:
                    control = target_from_json(answer["control"])
                found = tuple(answer["twins"])
                if not found:
                    return Observation(environment=environment)
                payload = {
                    **payload,
                    "shards": answer["shards"],
                    "tiers": list(found),
                }
                wait_prepared()
                cluster.call("train", payload, timeout_s=left(), tasks=trainers)
        except TaskFailedError as error:
            return Observation(
                failure=error,
                control=control,
                seconds=time.monotonic() - start_s,
                environment=environment,
                folder=folder,
                tiers=found,
            )
        replayed = one.call("replay", payload, timeout_s=left())
        replies = next(iter(replayed.values()))

    examples = None
    if scenario.workload == PIPELINE:
        examples = read_examples(folder, [str(task) for task in trainers])

    def read_evidence(tier: str) -> Evidence:
        parts = [read_trace(folder, f"observed-{tier}-{task}") for task in trainers]
        return Evidence(
            tier=tier,  # type: ignore[arg-type]  # the keys that were asked for
            observed=merge_traces(str(spec), parts),
            reference=read_trace(folder, f"reference-{tier}"),
            replays={
                phase: read_trace(folder, f"replay-{tier}-{phase}")
                for phase in replies["replays"][tier]
            },
            repeated=tuple(
                read_trace(folder, f"repeated-{tier}-{number}")
                for number in range(replies["repeated"][tier])
            ),
            turns=read_trace(folder, f"turns-{tier}")
            if tier in replies["turns"]
            else None,
            twins=tuple(
                read_trace(folder, f"twin-{tier}-{number}")
                for number in range(answer["twins"][tier])
            ),
            penalty=read_trace(folder, "penalty") if answer["penalty"] else None,
            probes={
                name: read_trace(folder, f"probe-{name}") for name in answer["probes"]
            },
            shards_known=answer["shards_known"],
            drawn_anew=tuple(replies["drawn_anew"]),
            data_driven=tuple(answer["data_driven"]),
            loss_reduction=answer["loss_reduction"],
            examples=examples,
            restored=bool(scenario.restore_from),
        )

    evidence = {tier: read_evidence(tier) for tier in found}
    return Observation(
        evidence=evidence,
        control=control,
        seconds=time.monotonic() - start_s,
        environment={**environment, "python": sys.version.split()[0]},
        folder=folder,
        tiers=found,
    )


def _train_before(
    target: TargetRef,
    scenario: Scenario,
    folder: Path,
    launch: Launch,
    left: Callable[[], float],
) -> dict[str, Any]:
    """Train on another cluster and save; returns what the payload has to say of it."""
    spec = ClusterSpec.parse(scenario.restore_from)
    before = replace(scenario, cluster=scenario.restore_from, restore_from="", split=())
    trainers = _list_trainers(spec)
    place = folder / "saved"
    place.mkdir(mode=0o700)
    payload = {
        "target": target_to_json(target),
        "scenario": scenario_to_json(before),
        "folder": str(place),
        "tasks": [str(task) for task in trainers],
    }
    jobs = (
        ("read", "prepare", "save")
        if scenario.workload == PIPELINE
        else ("prepare", "save")
    )
    with launch.start_cluster(
        spec, _make_opening(scenario.seed, scenario.jit)
    ) as cluster:
        for job in jobs:
            cluster.call(job, payload, timeout_s=left(), tasks=trainers)
    return {"restored": str(place), "saved_by": str(trainers[0])}


def observe_corrected(
    target: TargetRef,
    scenario: Scenario,
    spec: ClusterSpec,
    tier: Tier,
    phase: Phase,
    evidence: Evidence,
    folder: Path,
    launch: Launch,
) -> Evidence:
    """Run the cluster once more, with the reference's value in place of a wrong one.

    Args:
        target: The subject.
        scenario: What to run.
        spec: Its resolved cluster spec.
        tier: In which tier.
        phase: Where on its way the reference's gradient is put in.
        evidence: That of the run that was wrong.
        folder: Its traces.
        launch: How tasks are started.

    Returns:
        The evidence with what the corrected run left behind: slots, variables and
        iterations.

    Raises:
        ClusterError: The run did not get to its end.
    """
    payload = {
        "target": target_to_json(target),
        "scenario": scenario_to_json(scenario),
        "folder": str(folder),
        "tiers": [tier],
        "shards": list(evidence.reference.shards),
        "corrected": phase,
        "tasks": [str(task) for task in _list_trainers(spec)],
    }
    if scenario.restore_from:
        payload["restored"] = str(folder / "saved")
    opening = _make_opening(scenario.seed, scenario.jit)
    trainers = _list_trainers(spec)
    deadline_s = time.monotonic() + scenario.timeout_s
    with launch.start_cluster(spec, opening) as cluster:
        for job in ("prepare", "train"):
            left_s = max(0.1, deadline_s - time.monotonic())
            cluster.call(job, payload, timeout_s=left_s, tasks=trainers)
    parts = [read_trace(folder, f"corrected-{tier}-{task}") for task in trainers]
    merged = merge_traces(str(spec), parts)
    left = {key: v for key, v in merged.values.items() if key.phase in _LEFT_BEHIND}
    left_behind = replace(merged, values=left)
    return replace(evidence, observed=left_behind, replays={}, repeated=(), turns=None)


def read_examples(folder: Path, tasks: Sequence[str]) -> Examples:
    """What was read of an epoch, on one device and by the tasks of a cluster."""
    one, *parts = (
        json.loads((folder / f"examples-{name}.json").read_text("utf-8"))
        for name in ("one", *tasks)
    )
    return Examples(
        expected=tuple(tuple(step) for replica in one["seen"] for step in replica),
        seen=tuple(
            tuple(tuple(step) for step in replica)
            for part in parts
            for replica in part["seen"]
        ),
        is_whole=all(part["is_whole"] for part in (one, *parts)),
    )


def _call_reference(
    one: Group, payload: Mapping[str, Any], target: TargetRef, timeout_s: float
) -> dict[str, Any]:
    try:
        answers = one.call("reference", payload, timeout_s=timeout_s)
    except TaskFailedError as error:
        raise translate_failure(error, target) from error
    return next(iter(answers.values()))


def translate_failure(error: TaskFailedError, target: TargetRef) -> Exception:
    """Say what a failure on one device means: the input's or the bench's."""
    if error.kind == "input":
        return BadInputError(error.message)
    if error.kind == "subject":
        where = f" in {error.phase}" if error.phase else ""
        return BadInputError(
            f"Subject '{target.describe()}' fails on one device already{where}: "
            f"{error.exception}: {error.message.rstrip('.')}. A cluster can only be "
            "compared with a single-device run that works."
        )
    return ClusterError(str(error), detail=error.detail)


def _list_trainers(spec: ClusterSpec) -> tuple[Task, ...]:
    """The tasks that run the program: the chief under `ps`, else every worker."""
    return spec.tasks[:1] if spec.kind == "ps" else spec.tasks


def _assign_gpus(spec: ClusterSpec) -> dict[Task, dict[str, str]]:
    """Give each worker of a multi-worker cluster its own GPUs."""
    if spec.kind != "mwms" or spec.device != "gpu":
        return {}
    each = spec.replicas_per_worker
    return {
        task: {
            "CUDA_VISIBLE_DEVICES": ",".join(
                str(task.index * each + i) for i in range(each)
            )
        }
        for task in spec.tasks
    }
