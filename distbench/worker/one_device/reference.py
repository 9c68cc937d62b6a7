"""The single-device run: what every replica should have done."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from distbench.evidence import Tier
from distbench.scenario import Scenario
from distbench.trace import (
    COMPUTED,
    INITIAL,
    WHOLE,
    Phase,
    Recorded,
    Trace,
    TraceKey,
    Value,
)
from distbench.trace.naming import pair_names
from distbench.trace.settings import note_settings
from distbench.trace.shards import recut_shards
from distbench.worker.one_device.fed import FedSteps
from distbench.worker.one_device.handed import Handed
from distbench.worker.one_device.left_out import LeftOut
from distbench.worker.one_device.narrowest import find_narrowest
from distbench.worker.one_device.open_step import find_open_step
from distbench.worker.one_device.starts import Starts
from distbench.worker.one_device.taken_twice import repeats_step
from distbench.worker.process.failures import SubjectError
from distbench.worker.state.handles import Handles, find_written, find_written_late
from distbench.worker.stepping.program import count_batch
from distbench.worker.stepping.session import Session
from distbench.worker.stepping.steps import Step
from distbench.worker.subjects.batches import digest_batch
from distbench.worker.subjects.sizes import find_sizes
from distbench.worker.taps.collect import State
from distbench.worker.taps.draws import draws_on, find_draws, find_seeds
from distbench.worker.taps.exchanged import Exchanged
from distbench.worker.taps.handed_on import hands_on_as_given


class Reference:
    """Runs a scenario's subject on one device, and once more for every question.

    Args:
        session: The subject, built under the default strategy.
        scenario: What to run.
        replicas: Number of replicas, N, of the cluster that is judged.
    """

    def __init__(self, session: Session, scenario: Scenario, replicas: int) -> None:
        self.session = session
        self.scenario = scenario
        self.replicas = replicas
        program = session.program
        batch = self.draw(0)
        self.starts = Starts(session)
        self.examples = count_batch(batch)
        with session.guard("data"):
            self.sizes = find_sizes(program, scenario, replicas)
        self.shards = self.sizes.first
        session.varies = bool(self.sizes.resized)
        session.rehearse([batch])
        self._whole = session.make_step()
        self.handed = Handed()
        self.exchanged = Exchanged(session.board)
        with self.exchanged.notice():
            graph = session.prepare(self._whole, [batch])
        self._own = {v.path for v in session.variables if not v.synchronised}
        # A step without the update costs half as much, but leaves no state behind.
        stops_early = program.shards_known and not self._own
        function = program.local_step if stops_early else None
        self.narrowest = find_narrowest(graph, self.list_dtypes())
        self.draws = find_draws(graph)
        self.seeds = find_seeds(graph)
        self.graph = graph
        self.hands_on_as_given = hands_on_as_given(session.board.seen)
        self.handed.leads_own = not program.shards_known and bool(self._list_led_own())
        self.built = session.read_state()
        self.initial: State = dict(self.built)
        self._left_out = LeftOut(session, scenario.injected, function)
        is_drawn = draws_on(graph, Handles(session.table).known)
        if program.shards_known:
            self.repeats = not is_drawn
            # The share of a penalty is a constant of the trace, so the step of a shard
            # needs a trace of its own.
            self.shard_step = session.make_step(function)
        else:
            self.repeats = not is_drawn and repeats_step(self, batch)
            self.shard_step = self._whole
            if not self._whole.any_size:
                self.shard_step = find_open_step(self, batch) or self._whole
        self.led_steps = FedSteps(session, any_size=self.shard_step.any_size)

    def list_written(self) -> frozenset[str]:
        """Paths of what a step may change; of all where Python acts between steps."""
        if self.session.program.acts_between_steps:
            return frozenset(v.path for v in self.session.variables)
        return find_written(self.graph, self.session.table)

    def list_made_own(self) -> set[str]:
        """Paths of state of one replica that steps make, and may go on from."""
        # What a metric counts leads no later step.
        shown = {path for metric in self.session.metrics for path in metric.state}
        return (self._own & self.list_written()) - shown

    def _list_led_own(self) -> set[str]:
        """Paths of state of one replica that a step may make of what it trains."""
        made = self.list_made_own()
        if not self.session.program.acts_between_steps:
            made &= find_written_late(self.graph, self.session.table)
        return made

    def list_dtypes(self) -> frozenset[str]:
        """The dtypes of the model's variables."""
        own = self.session.variables
        return frozenset(v.dtype for v in own if v.role == "variable")

    def start_from(self, saved: Trace) -> None:
        """Start from the state that a cluster had when it was saved."""
        names = pair_names(saved.variables, self.session.variables)
        known = {v.path for v in self.session.variables if v.synchronised}
        found = {
            names.get(key.variable, key.variable): value
            for key, value in saved.select()
            if isinstance(value, np.ndarray)
        }
        for key, value in self.recut(found).items():
            if key[0] in known:
                self.initial[key] = value

    def recut(self, held: Mapping[str, npt.NDArray[Any]]) -> State:
        """What this subject's variables hold of another's that may be cut otherwise.

        Args:
            held: By path, what the other's hold.
        """
        wanted = {path: self.initial[path, 0].shape for path, _ in self.initial}
        return {(path, 0): v for path, v in recut_shards(held, wanted).items()}

    def draw(self, step: int) -> Any:
        """The global batch of a step."""
        with self.session.guard("data"):
            return self.session.program.data(step)

    def list_steps(self, tier: Tier) -> Iterator[tuple[int, Any, State]]:
        """Each step of a tier that was run: number, global batch, and where it began.

        To run the steps once more, from there or from elsewhere.
        """
        self.session.program.turn_to(tier)
        for step, before in enumerate(self.starts.list_whole(tier)):
            yield step, self.draw(step), before

    def run_whole(self, step: int, batch: Any, by: Step | None = None) -> None:
        """One step on the global batch, by its own trace or by another one."""
        self.begin_whole(step)
        self.take_whole(step, batch, by)

    def begin_whole(self, step: int) -> None:
        """What a program does before a step on the global batch."""
        self.session.program.replicas = 1
        self.session.begin_step(step)

    def take_whole(self, step: int, batch: Any, by: Step | None = None) -> None:
        """A step on the global batch that has begun."""
        by = by or self._left_out.find_whole(step, batch) or self._whole
        self.session.run(by, [batch])

    def run_shard(self, step: int, batch: Any, by: Step) -> None:
        """One step on a shard, as one of N replicas computes its loss.

        Args:
            step: Its number.
            batch: The shard.
            by: What runs it.
        """
        self.session.program.replicas = self.replicas
        self.session.begin_step(step)
        self.session.run(by, [batch])

    def run_led(self, step: int, batch: Any, by: Step, led: FedSteps) -> None:
        """One step on a shard, which goes on from the updates of the global batch.

        So does a step that updates several times on every replica: what is due of its
        later gradients is that.

        Args:
            step: Its number.
            batch: The shard.
            by: What runs it where a step updates once.
            led: What runs it where it updates more often.
        """
        handed = self.handed[step]
        if not handed:
            self.run_shard(step, batch, by)
            return
        with led.feed(handed, batch) as leading:
            self.run_shard(step, batch, leading)

    def runs_shard(self, step: int, batch: Any, by: Step | None = None) -> bool:
        """One step on a shard; False where a program takes a whole batch alone.

        Args:
            step: Its number.
            batch: The shard.
            by: What runs it; None is what runs any, see `run_led`.
        """
        try:
            if by is None:
                self.run_led(step, batch, self.shard_step, self.led_steps)
            else:
                self.run_shard(step, batch, by)
        except SubjectError:
            if self.session.program.shards_known:
                raise
            return False
        return True

    def observes_shard(
        self,
        tier: Tier,
        step: int,
        replica: int,
        batch: Any,
        values: Recorded,
        *,
        by: Step | None = None,
        joint: Collection[str] = (),
        phases: Collection[Phase] = COMPUTED,
    ) -> bool:
        """Run a replica's step on a shard, from its state, and keep what it computes.

        Args:
            tier: From whose states it starts, see `Starts.restore_shard`.
            step: Its number.
            replica: Whose shard.
            batch: The shard.
            values: Gets what the step computes.
            by: What runs it, see `runs_shard`.
            joint: Paths of what starts as the global batch has it.
            phases: What to keep.

        Returns:
            False, and nothing is kept, where a program takes a whole batch alone.
        """
        self.starts.restore_shard(tier, step, replica, joint)
        if not self.runs_shard(step, batch, by):
            return False
        self.session.collect_taps(step, values, replica=replica, phases=phases)
        return True

    def record(self, tier: Tier) -> Trace:
        """Run all steps of a tier, on the global batch and on each shard."""
        session = self.session
        values = session.make_values()
        session.collect_state(INITIAL, self.initial, values, replica=WHOLE)
        state = self.initial
        self.starts.forget(tier)
        own: list[State] = [{} for _ in self.shards]
        digests: list[str] = []
        session.program.turn_to(tier, anew=True)
        for step in range(self.scenario.steps):
            before = self.start_of(tier, step, state)
            self.starts.keep(tier, before, own)
            batch = self.draw(step)
            digests.append(digest_batch(batch))
            session.restore_state(before)
            self.run_whole(step, batch)
            state = session.read_state()
            session.collect_taps(step, values, replica=WHOLE)
            session.collect_state(step, state, values, replica=WHOLE)
            session.collect_results(step, state, values)
            self.handed.keep(values, step)
            for replica, shard in enumerate(self.sizes.cut(step, batch)):
                by = self._left_out.find_shard(step, replica)
                if self.observes_shard(tier, step, replica, shard, values, by=by):
                    own[replica] = self._read_own()
                    alone = {**own[replica], **self.read_led(values)}
                    session.collect_state(step, alone, values, replica=replica)
        return self.make_trace(
            "reference",
            values,
            batches=digests,
            repeats=self.repeats,
            places=[session.program.find_place(s) for s in range(len(digests))],
            left_out=[session.program.count_left_out(s) for s in range(len(digests))],
            padded=[session.program.is_padded(s) for s in range(len(digests))],
            narrowest=self.narrowest,
            begun=[session.begun.get(s, {}) for s in range(len(digests))],
            draws=self.draws,
            seeds=self.seeds,
            counted=session.list_counted(),
            **note_settings(session.settings),
            **session.board.note_intermediates(),
        )

    @cached_property
    def keeping(self) -> Step:
        """The step of the global batch that keeps what its collectives give.

        Raises:
            SubjectError: It cannot be traced once more.
        """
        by = self.session.make_step()
        with self.session.guard("step"), self.exchanged.keep():
            by.trace([self.draw(0)])
        return by

    @property
    def shared(self) -> frozenset[str]:
        """Paths of the state that all replicas have alike."""
        return frozenset(v.path for v in self.session.variables if v.synchronised)

    @property
    def keeps_own(self) -> bool:
        """Whether replicas have state for themselves."""
        return bool(self._own)

    def start_of(self, tier: Tier, step: int, state: State) -> State:
        """The state from which a step starts, given that after the one before."""
        if tier != "exact" or step == 0:
            return state
        model = {v.path for v in self.session.variables if v.role == "variable"}
        return {
            key: self.initial[key] if key[0] in model else array
            for key, array in state.items()
        }

    def _read_own(self) -> State:
        """The state that every replica has for itself, after the step of a shard."""
        return self.session.read_state(self._own) if self._own else {}

    def read_led(self, values: Mapping[TraceKey, Value]) -> State:
        """The state of a program that no gradient trains, after the step of a shard."""
        if self.session.program.shards_known:
            return {}
        trained = {k.variable for k in values if k.phase == "local_gradient"}
        led = {
            v.path
            for v in self.session.variables
            if v.role == "variable" and v.synchronised and v.path not in trained
        }
        return self.session.read_state(led)

    def make_trace(self, name: str, values: Recorded, **notes: object) -> Trace:
        """A trace of the variables and replicas that this reference has."""
        return Trace(
            name=name,
            replicas=self.replicas,
            shards=self.shards,
            variables=self.session.variables,
            values=values,
            notes=notes,
            metrics=self.session.metrics,
            resized=self.sizes.resized,
        )
