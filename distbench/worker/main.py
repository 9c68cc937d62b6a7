"""The jobs of a task: what the bench can ask a fresh process to do."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tensorflow as tf

from distbench.cluster import ClusterSpec
from distbench.errors import BadInputError
from distbench.evidence import Tier
from distbench.launch.channel import TaskChannel
from distbench.launch.task import TaskContext, serve
from distbench.naming import pair_names
from distbench.scenario import Scenario, scenario_from_json
from distbench.target import (
    load_target,
    target_from_json,
    target_to_json,
    write_pickled_target,
)
from distbench.trace import (
    INITIAL,
    Trace,
    TraceKey,
    Value,
    merge_traces,
    read_trace,
    write_trace,
)
from distbench.worker.anew import find_drawn_anew
from distbench.worker.batches import check_batches, digest_batch
from distbench.worker.earlier import rerun_earlier
from distbench.worker.environment import describe_environment
from distbench.worker.failures import SubjectError, classify_failure
from distbench.worker.families import name_control
from distbench.worker.flight import Rounds, fly
from distbench.worker.given import select_gradients, select_state
from distbench.worker.partition import shard_variables
from distbench.worker.program import Program, count_batch
from distbench.worker.reference import Reference, cut_batch
from distbench.worker.replay import Replay
from distbench.worker.reruns import has_near, rerun_shards
from distbench.worker.session import Session
from distbench.worker.steps import Step
from distbench.worker.strategies import (
    configure_runtime,
    draw_apart,
    make_strategy,
    serve_forever,
)
from distbench.worker.subjects import find_data, make_program, recognise_subject

_CHECKPOINT = "checkpoint"


def run_task(channel: TaskChannel, context: TaskContext) -> None:
    """Entry of every task that the bench starts."""
    worker = Worker(channel, context)
    serve(
        channel,
        {
            "open": worker.open,
            "describe": worker.describe,
            "read": worker.read,
            "reference": worker.make_reference,
            "prepare": worker.prepare,
            "train": worker.train,
            "save": worker.save,
            "replay": worker.replay,
            "plan_rounds": worker.plan_rounds,
            "fly": worker.fly,
            "follow_rounds": worker.follow_rounds,
            "call": worker.call,
        },
        classify=classify_failure,
    )


class Worker:
    """State of one task between its jobs."""

    def __init__(self, channel: TaskChannel, context: TaskContext) -> None:
        self._channel = channel
        self._context = context
        self._spec = ClusterSpec.parse(context.spec)
        self._strategy: tf.distribute.Strategy | None = None
        self._server: Any = None
        self._session: Session | None = None
        self._replay: Replay | None = None
        self._rounds: Rounds | None = None
        self._prepared: tuple[Session, Step, tuple[int, ...]] | None = None

    def open(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Start TensorFlow: threads, devices, ports and the strategy."""
        task = self._context.task
        configure_runtime(self._spec, payload["seed"], jit=payload.get("jit"))
        if self._spec.kind == "ps" and task.role != "chief":
            self._server = serve_forever(self._spec, task)
        else:
            self._strategy = make_strategy(
                self._spec,
                payload.get("collective_s"),
                payload.get("partitioner", ""),
            )
        return {"environment": describe_environment()}

    def describe(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Say what kind of subject a target is."""
        subject = load_target(target_from_json(payload["target"]))
        kind = recognise_subject(subject)
        # Only what a callable returns tells whether it makes a model; it was called.
        return {"kind": kind, "is_fresh": find_data(subject) is None}

    def read(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Read the input pipeline of the subject, as its cluster does."""
        scenario = scenario_from_json(payload["scenario"])
        self._channel.report_progress(phase="data")
        self._session = self._make_session(payload, scenario)
        self._read_data(self._session, payload, scenario, str(self._context.task))
        return {}

    def _read_data(
        self,
        session: Session,
        payload: Mapping[str, Any],
        scenario: Scenario,
        name: str,
    ) -> None:
        # In a job of the user's no seed makes the processes alike, unless theirs does.
        number = payload["tasks"].index(name) + 1 if name in payload["tasks"] else 0
        with session.guard("data"), draw_apart(scenario.seed, number):
            session.program.read_data(
                session.strategy, Path(payload["folder"]), name, scenario.steps
            )

    def _take_data(self, session: Session, payload: Mapping[str, Any]) -> None:
        with session.guard("data"):
            session.program.take_data(Path(payload["folder"]), payload["tasks"])

    def make_reference(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run the scenario on one device; writes a trace for each tier."""
        scenario = scenario_from_json(payload["scenario"])
        session = self._make_session(payload, scenario)
        self._read_data(session, payload, scenario, "one")
        self._take_data(session, payload)
        reference = Reference(session, scenario, payload["replicas"])
        if restored := payload.get("restored"):
            saved = f"saved-{payload['saved_by']}"
            reference.start_from(read_trace(Path(restored), saved))
        self._replay = replay = Replay(reference)
        program = session.program
        folder = Path(payload["folder"])
        twins: dict[Tier, int] = {}
        proved = program.prove_exact(scenario.steps, reference.shards)
        for tier in payload["tiers"]:
            if tier == "exact" and not proved:
                continue
            trace, copies = reference.record(tier)
            if tier == "exact" and not reference.sums_exactly(trace):
                continue
            notes = {**trace.notes, "exact_proved": tier == "exact"}
            write_trace(replace(trace, notes=notes), folder, f"reference-{tier}")
            for number, twin in enumerate(copies):
                write_trace(twin, folder, f"twin-{tier}-{number}")
            twins[tier] = len(copies)
        probes = dict(reference.record_probes())
        if twins:
            tier = next(iter(twins))
            distinct = replay.add_repeated_rows(tier, _read_reference(payload, tier))
            if distinct is not None:
                probes["distinct"] = distinct
        for name, probe in probes.items():
            write_trace(probe, folder, f"probe-{name}")
        penalty = reference.record_penalty()
        if penalty is not None:
            write_trace(penalty, folder, "penalty")
        return {
            "shards_known": program.shards_known,
            "loss_reduction": program.loss_reduction,
            "shards": list(reference.shards),
            "twins": twins,
            "probes": list(probes),
            "penalty": penalty is not None,
            "control": _write_control(session, folder),
        }

    def prepare(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Build the subject on the cluster and trace its first step."""
        scenario = scenario_from_json(payload["scenario"])
        self._channel.report_progress(phase="build")
        session = self._session or self._make_session(payload, scenario)
        self._take_data(session, payload)
        with session.guard("data"):
            batch = session.program.data(0)
        shards = session.program.split(
            scenario, count_batch(batch), self._spec.replicas
        )
        if corrected := payload.get("corrected"):
            reference = _read_reference(payload, payload["tiers"][0])
            session.board.feeding = corrected
            session.board.fed = select_gradients(reference, corrected, 0)
        if restored := payload.get("restored"):
            # Before the first step, which makes the slots: they are restored when they
            # come into being.
            with session.guard("restore"), session.strategy.scope():
                checkpoint = session.program.make_checkpoint()
                checkpoint.restore(str(Path(restored) / _CHECKPOINT))
        self._channel.report_progress(phase="first step")
        step = session.make_step()
        session.prepare(step, list(cut_batch(batch, shards)))
        self._prepared = session, step, shards
        return {}

    def train(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run the scenario on the cluster; writes this task's part of the traces."""
        if self._prepared is None:
            raise RuntimeError("train was asked for before prepare")
        session, trained, shards = self._prepared
        scenario = scenario_from_json(payload["scenario"])
        folder = Path(payload["folder"])
        if list(shards) != payload["shards"]:
            raise BadInputError(
                f"data(0) of '{scenario.target}' must return the same batch in every "
                f"process. Expected {sum(payload['shards'])} examples, as on one "
                f"device. Received: {sum(shards)}."
            )
        first = _read_reference(payload, payload["tiers"][0])
        session.table.rename(pair_names(session.variables, first.variables))
        initial = session.read_state()
        for tier in payload["tiers"]:
            session.restore_state(initial)
            reference = _read_reference(payload, tier)
            with session.guard("data"):
                check_batches(session.program, reference)
            values: dict[TraceKey, Value] = {}
            session.collect_state(INITIAL, initial, values)
            for step in range(scenario.steps):
                self._channel.report_progress(step=step, phase=tier)
                if tier != "free" or step == 0:
                    session.write_state(select_state(reference, tier, step))
                if corrected := payload.get("corrected"):
                    session.board.fed = select_gradients(reference, corrected, step)
                    session.board.set_feeds()
                self._run_step(session, trained, step, shards, values)
                if payload.get("partly"):
                    partly = self._make_trace(session, tier, shards, values)
                    write_trace(partly, folder, f"partly-{tier}-{self._context.task}")
            trace = self._make_trace(session, tier, shards, values)
            name = "corrected" if payload.get("corrected") else "observed"
            write_trace(trace, folder, f"{name}-{tier}-{self._context.task}")
        return {}

    def _make_trace(
        self,
        session: Session,
        tier: Tier,
        shards: tuple[int, ...],
        values: dict[TraceKey, Value],
    ) -> Trace:
        return Trace(
            name=str(self._spec),
            replicas=self._spec.replicas,
            shards=shards,
            variables=session.variables,
            values=dict(values),
            notes={"tier": tier, "micro_steps": session.board.count_gradients()},
            metrics=session.metrics,
        )

    def save(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Train on the cluster and save what came of it, for another to restore."""
        if self._prepared is None:
            raise RuntimeError("save was asked for before prepare")
        session, trained, shards = self._prepared
        folder = Path(payload["folder"])
        for step in range(scenario_from_json(payload["scenario"]).steps):
            self._channel.report_progress(step=step, phase="before the restore")
            self._run_step(session, trained, step, shards, {})
        values: dict[TraceKey, Value] = {}
        session.collect_state(INITIAL, session.read_state(), values)
        trace = self._make_trace(session, "free", shards, values)
        write_trace(trace, folder, f"saved-{self._context.task}")
        # All tasks write, since some variables are read over all of them, but only the
        # first one's is kept.
        is_first = str(self._context.task) == payload["tasks"][0]
        name = _CHECKPOINT if is_first else f"checkpoint-of-{self._context.task}"
        with session.guard("save"), session.strategy.scope():
            session.program.make_checkpoint().write(str(folder / name))
        return {}

    def _run_step(
        self,
        session: Session,
        trained: Step,
        step: int,
        shards: tuple[int, ...],
        values: dict[TraceKey, Value],
    ) -> None:
        with session.guard("data"):
            batch = session.program.data(step)
        session.begin_step(step)
        session.run(trained, list(cut_batch(batch, shards)))
        session.collect_taps(step, values)
        state = session.read_state()
        session.collect_state(step, state, values)
        session.collect_results(step, state, values)

    def replay(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Feed what the cluster observed into the single-device update."""
        if self._replay is None:
            raise RuntimeError("replay was asked for before the reference")
        reference = self._replay.reference
        return {
            "tiers": {tier: self._follow(payload, tier) for tier in payload["tiers"]},
            "drawn_anew": find_drawn_anew(
                _read_observed(payload, payload["tiers"][-1]),
                reference,
                lambda: self._make_session(payload, reference.scenario),
            ),
        }

    def _follow(self, payload: Mapping[str, Any], tier: Tier) -> Mapping[str, Any]:
        """What follows from what was observed in a tier; says which traces it wrote."""
        assert self._replay is not None
        reference = self._replay.reference
        folder = Path(payload["folder"])
        observed = _read_observed(payload, tier)
        recorded = _read_reference(payload, tier)
        followed = self._replay.follow(tier, observed)
        for phase, trace in followed.fed.items():
            write_trace(trace, folder, f"replay-{tier}-{phase}")
        reruns: tuple[Trace, ...] = ()
        if _asks_for_reruns(reference, tier, payload) and (
            payload.get("rerun") or has_near(observed, recorded)
        ):
            reruns = rerun_shards(reference, tier)
        written: dict[str, Any] = {"replays": list(followed.fed), "undetermined": []}
        traces: dict[str, Sequence[Trace | None]] = {
            "repeated": followed.repeated,
            "turns": [followed.turns],
            "op_by_op": [followed.op_by_op],
            "reruns": reruns,
            "earlier": rerun_earlier(reference, tier, observed, recorded),
        }
        for name, found in traces.items():
            known = [trace for trace in found if trace is not None]
            for number, trace in enumerate(known):
                write_trace(trace, folder, f"{name}-{tier}-{number}")
            written[name] = len(known)
        if not followed.is_explained:
            written["undetermined"] = self._replay.find_undetermined(
                tier, recorded, observed, followed.fed["reduced_gradient"]
            )
        return written

    def plan_rounds(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run the rounds of steps in flight on one device, in the order of schedule."""
        scenario = scenario_from_json(payload["scenario"])
        session = self._make_session(payload, scenario)
        session.program.check_in_flight()
        reference = Reference(session, scenario, payload["replicas"])
        self._rounds = Rounds(reference, scenario)
        folder = Path(payload["folder"])
        starts, commutes = self._rounds.plan()
        digests = [
            digest_batch(reference.draw(step)) for step in range(scenario.scheduled)
        ]
        notes = {**starts.notes, "batches": digests}
        write_trace(replace(starts, notes=notes), folder, "starts")
        return {
            "commutes": commutes,
            "control": _write_control(session, folder, keeps_descent=True),
        }

    def fly(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run the rounds on the cluster; writes the trace `flown`."""
        if self._prepared is None:
            raise RuntimeError("fly was asked for before prepare")
        session, _, _ = self._prepared
        scenario = scenario_from_json(payload["scenario"])
        folder = Path(payload["folder"])
        starts = read_trace(folder, "starts")
        session.table.rename(pair_names(session.variables, starts.variables))
        with session.guard("data"):
            check_batches(session.program, starts)
        flown = fly(
            session,
            scenario,
            starts,
            lambda step: self._channel.report_progress(step=step, phase="in flight"),
        )
        write_trace(flown, folder, "flown")
        return {}

    def follow_rounds(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run the rounds in orders that the cluster's steps may have had."""
        if self._rounds is None:
            raise RuntimeError("follow_rounds was asked for before plan_rounds")
        folder = Path(payload["folder"])
        followed = self._rounds.follow(read_trace(folder, "flown"))
        for number, trace in enumerate(followed.orders):
            write_trace(trace, folder, f"order-{number}")
        for place, trace in followed.lost.items():
            write_trace(trace, folder, f"lost-{place}")
            write_trace(followed.again[place], folder, f"again-{place}")
        return {"orders": len(followed.orders), "left_out": list(followed.lost)}

    def call(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run a function of the user's in this task; writes what it returns."""
        import cloudpickle

        folder = Path(payload["folder"])
        configure_runtime(self._spec, payload["seed"])
        if self._spec.kind == "ps" and self._context.task.role != "chief":
            self._server = serve_forever(self._spec, self._context.task)
            if self._context.task.role == "ps":
                return {}
        try:
            function = pickle.loads((folder / "function.pkl").read_bytes())
            args = pickle.loads((folder / "args.pkl").read_bytes())
            value = function(*args)
        except Exception as error:
            raise SubjectError("call", None) from error
        path = folder / f"result-{self._context.task}.pkl"
        temporary = path.with_suffix(".tmp")
        temporary.write_bytes(cloudpickle.dumps(value))
        temporary.replace(path)
        return {}

    def _make_session(self, payload: Mapping[str, Any], scenario: Scenario) -> Session:
        if self._strategy is None:
            raise RuntimeError("a job was given before the task was opened")
        subject = load_target(target_from_json(payload["target"]))
        program: Program = make_program(subject, scenario)
        # A tap holds what one step left in it: steps in flight would write over it.
        tapped = self._spec.kind != "ps" or scenario.in_flight == 1
        # A strategy has the shards from its partitioner already.
        shards = scenario.partitioner if self._spec.kind == "one" else ""
        with shard_variables(shards):
            return Session(
                program, self._strategy, self._spec, self._context.task, tapped=tapped
            )


def _asks_for_reruns(
    reference: Reference, tier: Tier, payload: Mapping[str, Any]
) -> bool:
    """Whether a replica ought to repeat its shard, bit by bit or nearly so.

    It starts from the same state, and computes with the same kernels. A replica of a
    program of the user's is held against the whole batch or weighed shards.
    """
    spec = ClusterSpec.parse(payload["cluster"])
    same = tier == "bounded" and spec.device == "cpu"
    return same and reference.session.program.shards_known


def _write_control(
    session: Session, folder: Path, *, keeps_descent: bool = False
) -> str | None:
    """Have the stock optimizer of the first optimizer's family ready as a subject."""
    if not session.optimizers:
        return None
    control = session.program.make_control(
        session.optimizers, keeps_descent=keeps_descent
    )
    label = f"distbench.worker.controls:{name_control(session.optimizers[0])}"
    return target_to_json(write_pickled_target(control, folder, label))


def _read_observed(payload: Mapping[str, Any], tier: str) -> Trace:
    folder = Path(payload["folder"])
    parts = [read_trace(folder, f"observed-{tier}-{task}") for task in payload["tasks"]]
    return merge_traces(str(payload["cluster"]), parts)


def _read_reference(payload: Mapping[str, Any], tier: str) -> Trace:
    return read_trace(Path(payload["folder"]), f"reference-{tier}")
