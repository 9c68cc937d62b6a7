"""A task between its jobs: its strategy, and the subject built under it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from distbench.cluster import ClusterSpec
from distbench.errors import BadInputError, find_advice
from distbench.launch.channel import TaskChannel, end_at_once
from distbench.launch.notes import Notes
from distbench.launch.task import TaskContext
from distbench.scenario import Scenario
from distbench.scenario.choices import WORKLOADS
from distbench.target import target_from_json
from distbench.target.loading import LoadError, load_target
from distbench.trace.shelf import Shelf
from distbench.worker.process.ahead import take_a_step
from distbench.worker.process.chance import (
    draw_apart,
    draw_apart_by_worker,
    seed_chance,
)
from distbench.worker.process.collectives import give_up, watch_collectives
from distbench.worker.process.environment import (
    describe_environment,
    find_keras_setting,
)
from distbench.worker.process.failures import SubjectError, blame_subject
from distbench.worker.process.op_by_op import keep_traced
from distbench.worker.process.placing import place_as_replica
from distbench.worker.process.strategies import (
    configure_runtime,
    make_strategy,
    serve_forever,
)
from distbench.worker.state.partition import shard_variables
from distbench.worker.stepping.program import Program
from distbench.worker.stepping.session import Session
from distbench.worker.subjects.keras_data import find_data
from distbench.worker.subjects.kinds import make_program, recognise_subject


class Task:
    """What all jobs of a task share.

    Args:
        channel: The connection to the bench.
        context: Which task of which cluster this is.

    Attributes:
        name: Such as `worker-0`.
        role: Such as `worker`.
        spec: The cluster.
    """

    def __init__(self, channel: TaskChannel, context: TaskContext) -> None:
        self.name = str(context.task)
        self.role = context.task.role
        self.spec = ClusterSpec.parse(context.spec)
        self.report_progress = channel.report_progress
        channel.give_up = give_up
        watch_collectives(Notes(context.notes).add)
        self._context = context
        self._strategy: tf.distribute.Strategy | None = None
        self._server: Any = None

    @property
    def address(self) -> tuple[str, int] | None:
        """The host and port where it serves, None without one."""
        me = self._context.task
        addresses = self._context.addresses.get(me.role)
        if not addresses:
            return None
        host, _, port = addresses[me.index].rpartition(":")
        return host, int(port)

    def open(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Start TensorFlow: threads, devices, ports and the strategy."""
        configure_runtime(
            self.spec,
            self.role,
            payload["seed"],
            jit=payload.get("jit"),
            op_determinism=payload.get("op_determinism", False),
        )
        if not self.serve():
            self._strategy = make_strategy(
                self.spec,
                payload.get("partitioner", ""),
            )
            if payload.get("ahead") and not self.spec.traits.scheduled:
                take_a_step(self._strategy)
                seed_chance(payload["seed"])
        return {"environment": describe_environment()}

    def serve(self) -> bool:
        """Start the server of a task that serves a chief; says whether it does."""
        if not self.spec.traits.scheduled or self._context.task.role == "chief":
            return False
        self._server = serve_forever(self.spec, self._context.task)
        return True

    def describe(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Say what kind of subject a target is, and which Keras it wants."""
        before = find_keras_setting()
        try:
            subject = self._load(payload, is_first=True)
            # A property of the user's may raise wherever the subject is looked at.
            with blame_subject("build"):
                kind = recognise_subject(subject)
        except Exception:
            # A module that finds half of one Keras and half of the other may raise.
            if find_keras_setting() == before:
                raise
        if find_keras_setting() != before:
            return {"keras": find_keras_setting()}
        # Only what a callable returns tells whether it makes a model; it was called.
        return {"kind": kind, "is_fresh": find_data(subject) is None}

    def place(
        self, job: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    ) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
        """A job of one device whose steps are placed as those of its cluster are."""

        def run(payload: Mapping[str, Any]) -> Mapping[str, Any]:
            is_told = not ClusterSpec.parse(payload["cluster"]).traits.single
            if not is_told or self.spec.device != "gpu":
                return job(payload)
            with place_as_replica(tf.distribute.get_strategy()):
                return job(payload)

        return run

    def make_session(self, payload: Mapping[str, Any], scenario: Scenario) -> Session:
        """Build the subject under the strategy."""
        if self._strategy is None:
            raise RuntimeError("a job was given before the task was opened")
        name = target_from_json(payload["target"]).describe()
        subject = self._load(payload)
        self.report_progress(phase="build")
        with blame_subject("build"):
            program: Program = make_program(subject, scenario)
        # A tap holds what one step left in it: steps in flight would write over it.
        tapped = not self.spec.traits.scheduled or scenario.in_flight == 1
        # A strategy has the shards from its partitioner already.
        shards = scenario.partitioner if self.spec.traits.single else ""
        with shard_variables(shards), keep_traced(name):
            session = Session(
                program,
                self._strategy,
                self.spec,
                self._context.task,
                tapped=tapped,
                alone=payload.get("alone", False),
                gives_draws=scenario.given_draws,
                # Losses of a workload are multiplied where they are computed.
                weight=1.0 if scenario.workload in WORKLOADS else scenario.loss_weight,
            )
        session.shelf = Shelf(Path(payload["folder"]))
        if payload.get("inside"):
            session.look_inside(of_steps=payload["inside"] == "steps")
        return session

    def _load(self, payload: Mapping[str, Any], *, is_first: bool = False) -> Any:
        """Load the subject.

        Args:
            payload: Of the job.
            is_first: Whether no task has. What is raised then shows that it is no
                subject, and later that it fails where its task is.
        """
        self.report_progress(phase="load")
        try:
            return _load_subject(payload)
        except LoadError as error:
            cause = error.__cause__
            # What the machine lacks makes no subject wrong.
            if cause and (find_advice(cause) or (error.is_own and not is_first)):
                raise SubjectError("load", None) from cause
            raise

    def read_data(
        self,
        session: Session,
        payload: Mapping[str, Any],
        scenario: Scenario,
        name: str,
        others: Sequence[str] = (),
    ) -> None:
        """Read the input pipeline of a subject that has one, as one of its tasks.

        See `Program.read_data` for `others`.
        """
        # In a job of the user's no seed makes the processes alike, unless theirs does.
        number = payload["tasks"].index(name) + 1 if name in payload["tasks"] else 0
        draws = draw_apart(scenario.seed, number)
        if self.spec.traits.scheduled:
            draws = draw_apart_by_worker()
        with session.guard("data"), draws:
            session.program.read_data(
                session.strategy,
                Path(payload["folder"]),
                name,
                scenario.batches,
                others=others,
            )

    def take_data(
        self, session: Session, payload: Mapping[str, Any], scenario: Scenario
    ) -> None:
        """Take what all tasks have read for the data to train on."""
        with session.guard("data"):
            session.program.take_data(
                Path(payload["folder"]), payload["tasks"], scenario.batches
            )


def _load_subject(payload: Mapping[str, Any]) -> Any:
    ref = target_from_json(payload["target"])
    task = os.getpid()
    with keep_traced(ref.describe()):
        subject = load_target(ref)
    if os.getpid() != task:
        # A fork that the module made goes on here, and would meet the other tasks by
        # the connections that it has of this one.
        end_at_once()
    if not tf.executing_eagerly():
        raise BadInputError(
            f"Target '{ref.describe()}' turns eager execution off as it is imported "
            "(tf.compat.v1.disable_eager_execution or disable_v2_behavior). Expected: "
            "a module that leaves it on, as the bench's steps need it. Call that where "
            "the script starts (`if __name__ == '__main__':`)."
        )
    return subject
