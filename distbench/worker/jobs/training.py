"""The scenario on its cluster: build, trace, train, save."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from distbench.errors import BadInputError, count_things
from distbench.scenario import scenario_from_json
from distbench.trace import INITIAL, Recorded, Trace
from distbench.trace.files import write_trace
from distbench.trace.naming import pair_names
from distbench.worker.jobs.folder import CHECKPOINT, read_reference
from distbench.worker.jobs.task import Task
from distbench.worker.jobs.traced import note_traced
from distbench.worker.process.chance import trace_apart
from distbench.worker.state.carried import list_carried
from distbench.worker.stepping.injected import FaultySteps
from distbench.worker.stepping.session import Session
from distbench.worker.stepping.steps import Step
from distbench.worker.subjects.batches import check_batches
from distbench.worker.subjects.sizes import Sizes, find_sizes
from distbench.worker.taps.given import (
    select_free_start,
    select_gradients,
    select_state,
)


class TrainingJobs:
    """Jobs of a task that trains."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._seed = 0
        self._session: Session | None = None
        self._prepared: tuple[Session, Step, Sizes] | None = None
        self._traced: Mapping[str, object] = {}
        self._carried: tuple[str, ...] = ()
        self._spoilt: dict[int, list[int]] = {}

    @property
    def prepared(self) -> tuple[Session, Step, Sizes]:
        """The subject, its traced step and the shards."""
        if self._prepared is None:
            raise RuntimeError("a step was asked for before prepare")
        return self._prepared

    def read(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Read the input pipeline of the subject, as its cluster does."""
        scenario = scenario_from_json(payload["scenario"])
        self._session = self._task.make_session(payload, scenario)
        self._task.report_progress(phase="data")
        self._task.read_data(self._session, payload, scenario, self._task.name)
        return {}

    def prepare(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Build the subject on the cluster and trace its first step."""
        scenario = scenario_from_json(payload["scenario"])
        self._seed = scenario.seed
        session = self._session or self._task.make_session(payload, scenario)
        self._task.take_data(session, payload, scenario)
        with session.guard("data"):
            sizes = find_sizes(session.program, scenario, self._task.spec.replicas)
            batch = session.program.data(0)
        session.varies = bool(sizes.resized)
        if corrected := payload.get("corrected"):
            reference = read_reference(payload, payload["tiers"][0])
            session.board.fed = select_gradients(reference, corrected, 0)
        late = scenario.restore_after
        if not late:
            # The first step makes the slots: they are restored when they come into
            # being.
            _restore(session, payload)
        self._task.report_progress(phase="first step")
        shards = list(sizes.cut(0, batch))
        session.rehearse(shards)
        trained = session.make_step()
        with trace_apart(scenario.seed, session.first_replica):
            graph = session.prepare(trained, shards)
        self._traced = note_traced(session, graph)
        self._carried = list_carried(graph, session.table)
        for step in range(late):
            self._task.report_progress(step=step, phase="before the restore")
            self.run_step(session, trained, step, sizes, {})
        if late:
            _restore(session, payload)
        self._prepared = session, trained, sizes
        return {}

    def train(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run the scenario on the cluster; writes this task's part of the traces."""
        session, trained, sizes = self.prepared
        scenario = scenario_from_json(payload["scenario"])
        folder = Path(payload["folder"])
        if list(sizes.first) != payload["shards"]:
            raise BadInputError(
                f"data(0) of '{scenario.target}' must return the same batch in every "
                "process. Expected "
                f"{count_things(sum(payload['shards']), 'example')}, as on one device. "
                f"Received: {sum(sizes.first)}."
            )
        self.take_names(payload)
        faulty = FaultySteps(session, scenario.injected)
        initial = session.read_state()
        for tier in payload["tiers"]:
            session.restore_state(initial)
            session.program.turn_to(tier, anew=True)
            self._spoilt = {}
            session.begun.clear()
            session.taken_by.clear()
            reference = read_reference(payload, tier)
            with session.guard("data"):
                check_batches(session.program, reference)
            values = session.make_values()
            session.collect_state(INITIAL, initial, values)
            kind = "corrected" if payload.get("corrected") else "observed"
            name = f"{kind}-{tier}-{self._task.name}"
            try:
                for step in range(scenario.steps):
                    waits = step in payload["waits"]
                    self._task.report_progress(step=step, phase=tier, waits=waits)
                    if tier != "free":
                        session.write_state(select_state(reference, tier, step))
                    elif step == 0:
                        replicas = self._task.spec.replicas
                        start = select_free_start(reference, initial, replicas)
                        session.write_state(start)
                    if corrected := payload.get("corrected"):
                        session.board.fed = select_gradients(reference, corrected, step)
                        session.board.set_feeds()
                    by = faulty.find(step) or trained
                    self.run_step(session, by, step, sizes, values)
            except BaseException:
                # The steps before may tell why it failed, unless the disk is full.
                with contextlib.suppress(OSError):
                    trace = self._make_trace(session, sizes, values)
                    write_trace(trace, folder, name)
                raise
            trace = self._make_trace(session, sizes, values)
            write_trace(trace, folder, name)
        return {}

    def take_names(self, payload: Mapping[str, Any]) -> None:
        """Call variables by the names that they have on one device."""
        session, _, _ = self.prepared
        first = read_reference(payload, payload["tiers"][0])
        session.table.rename(pair_names(session.variables, first.variables))

    def save(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Train on the cluster and save what came of it, for another to restore."""
        session, trained, sizes = self.prepared
        folder = Path(payload["folder"])
        for step in range(scenario_from_json(payload["scenario"]).steps):
            self._task.report_progress(step=step, phase="before the restore")
            self.run_step(session, trained, step, sizes, {})
        values = session.make_values()
        session.collect_state(INITIAL, session.read_state(), values)
        trace = self._make_trace(session, sizes, values)
        write_trace(trace, folder, f"saved-{self._task.name}")
        # All tasks write, since some variables are read over all of them, but only the
        # first one's is kept.
        is_first = self._task.name == payload["tasks"][0]
        name = CHECKPOINT if is_first else f"checkpoint-of-{self._task.name}"
        with session.guard("save"), session.strategy.scope():
            session.program.make_checkpoint().write(str(folder / name))
        return {}

    def run_step(
        self,
        session: Session,
        trained: Step,
        step: int,
        sizes: Sizes,
        values: Recorded,
    ) -> None:
        """Run one step; adds to `values` what it left."""
        with session.guard("data"):
            batch = session.program.data(step)
        session.begin_step(step)
        with trace_apart(self._seed, session.first_replica):
            session.run(trained, list(sizes.cut(step, batch)))
        for replica in session.spoilt.take():
            self._spoilt.setdefault(replica, []).append(step)
        session.collect_taps(step, values)
        state = session.read_state()
        session.collect_state(step, state, values)
        session.collect_results(step, state, values)

    def _make_trace(
        self,
        session: Session,
        sizes: Sizes,
        values: Recorded,
    ) -> Trace:
        return Trace(
            name=str(self._task.spec),
            replicas=self._task.spec.replicas,
            shards=sizes.first,
            variables=tuple(
                replace(info, is_carried=info.path in self._carried)
                for info in session.variables
            ),
            values=values,
            notes={
                "micro_steps": session.board.seen.gradients.count(),
                "begun": [session.begun.get(s, {}) for s in range(len(session.begun))],
                "taken_by": [session.taken_by[s] for s in sorted(session.taken_by)],
                **self._traced,
                **session.board.note_intermediates(),
                **{f"spoilt-{r}": steps for r, steps in self._spoilt.items()},
            },
            metrics=session.metrics,
            resized=sizes.resized,
        )


def _restore(session: Session, payload: Mapping[str, Any]) -> None:
    """Restore what another cluster saved, if the scenario goes on from it."""
    if restored := payload.get("restored"):
        with session.guard("restore"), session.strategy.scope():
            checkpoint = session.program.make_checkpoint()
            checkpoint.restore(str(Path(restored) / CHECKPOINT))
