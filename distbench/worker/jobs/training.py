"""The scenario on its cluster: build, trace, train, save."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from distbench.errors import BadInputError, count_things
from distbench.scenario import scenario_from_json
from distbench.trace import INITIAL, Recorded, Trace
from distbench.trace.files import write_trace
from distbench.trace.naming import pair_names
from distbench.worker.jobs.folder import CHECKPOINT, read_reference
from distbench.worker.jobs.task import Task
from distbench.worker.jobs.traced import note_traced, rename_noted
from distbench.worker.process.chance import trace_apart
from distbench.worker.state.carried import list_carried
from distbench.worker.state.scratch import list_scratch
from distbench.worker.stepping.injected import FaultySteps
from distbench.worker.stepping.session import Session
from distbench.worker.stepping.steps import Step
from distbench.worker.subjects.batches import check_batches
from distbench.worker.subjects.sizes import Sizes, find_sizes
from distbench.worker.taps.callers import name_op
from distbench.worker.taps.given import (
    rename_fed,
    select_free_start,
    select_gradients,
    select_state,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A subject that is built on the cluster, with its first step traced.

    Attributes:
        session: The subject.
        seed: Of what its steps draw from global generators.
        trained: Its traced step.
        sizes: The shards.
        notes: What is known of the trace.
        carried: Paths of state that the step only carries on.
        scratch: State that it assigns before it uses it; see `VariableInfo.decided_by`.
    """

    session: Session
    seed: int
    trained: Step
    sizes: Sizes
    notes: Mapping[str, object]
    carried: tuple[str, ...]
    scratch: Mapping[str, str]

    def rename(self, paths: Mapping[str, str]) -> Prepared:
        """The same with other paths of variables, which its session has from now on."""
        self.session.rename(paths)
        return replace(
            self,
            notes=rename_noted(self.notes, paths),
            carried=tuple(paths.get(path, path) for path in self.carried),
            scratch={paths.get(p, p): known for p, known in self.scratch.items()},
        )


class TrainingJobs:
    """Jobs of a task that trains."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._session: Session | None = None
        self._prepared: Prepared | None = None
        self._spoilt: dict[int, list[int]] = {}

    @property
    def prepared(self) -> Prepared:
        """What the job of that name left."""
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
        session = self._session or self._task.make_session(payload, scenario)
        self._task.take_data(session, payload, scenario)
        with session.guard("data"):
            sizes = find_sizes(session.program, scenario, self._task.spec.replicas)
            batch = session.program.data(0)
        session.varies = bool(sizes.resized)
        if corrected := payload.get("corrected"):
            reference = read_reference(payload, payload["tiers"][0])
            fed = select_gradients(reference, corrected, 0)
            paths = pair_names(session.variables, reference.variables)
            session.board.fed = rename_fed(fed, {paths[own]: own for own in paths})
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
        self._prepared = Prepared(
            session=session,
            seed=scenario.seed,
            trained=trained,
            sizes=sizes,
            notes=note_traced(session, graph),
            carried=list_carried(graph, session.table),
            scratch=_list_scratch(session, graph),
        )
        for step in range(late):
            self._task.report_progress(step=step, phase="before the restore")
            self.run_step(step, {})
        if late:
            _restore(session, payload)
        return {}

    def train(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run the scenario on the cluster; writes this task's part of the traces."""
        session, sizes = self.prepared.session, self.prepared.sizes
        scenario = scenario_from_json(payload["scenario"])
        folder = Path(payload["folder"])
        if list(sizes.first) != payload["shards"]:
            raise BadInputError(
                f"data(0) of '{scenario.target}' must return the same batch in every "
                "process. Expected "
                f"{count_things(sum(payload['shards']), 'example')}, as on one device. "
                f"Received: {sum(sizes.first)}."
            )
        self.take_names(read_reference(payload, payload["tiers"][0]))
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
                    self.run_step(step, values, faulty.find(step))
            except BaseException:
                # The steps before may tell why it failed, unless the disk is full.
                with contextlib.suppress(OSError):
                    write_trace(self._make_trace(values), folder, name)
                raise
            write_trace(self._make_trace(values), folder, name)
        return {}

    def take_names(self, reference: Trace) -> None:
        """Call variables by the names that they have on one device."""
        ours = self.prepared.session.variables
        self._prepared = self.prepared.rename(pair_names(ours, reference.variables))

    def save(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Train on the cluster and save what came of it, for another to restore."""
        session = self.prepared.session
        folder = Path(payload["folder"])
        for step in range(scenario_from_json(payload["scenario"]).steps):
            self._task.report_progress(step=step, phase="before the restore")
            self.run_step(step, {})
        values = session.make_values()
        session.collect_state(INITIAL, session.read_state(), values)
        write_trace(self._make_trace(values), folder, f"saved-{self._task.name}")
        # All tasks write, since some variables are read over all of them, but only the
        # first one's is kept.
        is_first = self._task.name == payload["tasks"][0]
        name = CHECKPOINT if is_first else f"checkpoint-of-{self._task.name}"
        with session.guard("save"), session.strategy.scope():
            session.program.make_checkpoint().write(str(folder / name))
        return {}

    def run_step(self, step: int, values: Recorded, by: Step | None = None) -> None:
        """Run one step, by the traced one or another; adds to `values` what it left."""
        prepared, session = self.prepared, self.prepared.session
        with session.guard("data"):
            batch = session.program.data(step)
        session.begin_step(step)
        with trace_apart(prepared.seed, session.first_replica):
            shards = list(prepared.sizes.cut(step, batch))
            session.run(by or prepared.trained, shards)
        for replica in session.spoilt.take():
            self._spoilt.setdefault(replica, []).append(step)
        session.collect_taps(step, values)
        state = session.read_state()
        session.collect_state(step, state, values)
        session.collect_results(step, state, values)

    def _make_trace(self, values: Recorded) -> Trace:
        prepared, session = self.prepared, self.prepared.session
        return Trace(
            name=str(self._task.spec),
            replicas=self._task.spec.replicas,
            shards=prepared.sizes.first,
            variables=tuple(
                replace(
                    info,
                    is_carried=info.path in prepared.carried,
                    is_scratch=info.path in prepared.scratch,
                    decided_by=prepared.scratch.get(info.path, ""),
                )
                for info in session.variables
            ),
            values=values,
            notes={
                "micro_steps": session.board.seen.gradients.count(),
                "begun": [session.begun.get(s, {}) for s in range(len(session.begun))],
                "taken_by": [session.taken_by[s] for s in sorted(session.taken_by)],
                **prepared.notes,
                **session.board.note_intermediates(),
                **{f"spoilt-{r}": steps for r, steps in self._spoilt.items()},
            },
            metrics=session.metrics,
            resized=prepared.sizes.resized,
        )


def _list_scratch(session: Session, graph: Any) -> dict[str, str]:
    """State that the step assigns before it uses it; see `VariableInfo.decided_by`."""
    sums = chain(*session.board.seen.reduced.values())
    found = list_scratch(graph, session.table, sums)
    # What a loop does between two steps no graph tells.
    loop = "what runs between two steps" if session.program.acts_between_steps else ""
    return {path: name_op(op) if op else loop for path, op in found.items()}


def _restore(session: Session, payload: Mapping[str, Any]) -> None:
    """Restore what another cluster saved, if the scenario goes on from it."""
    if restored := payload.get("restored"):
        with session.guard("restore"), session.strategy.scope():
            checkpoint = session.program.make_checkpoint()
            checkpoint.restore(str(Path(restored) / CHECKPOINT))
