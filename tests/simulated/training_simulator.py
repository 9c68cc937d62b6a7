"""Data-parallel training in NumPy: makes the evidence of a run, right or wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from gradient_values import Gradients, add_up, keep_slices, scale
from simulated_model import BIAS, HEAD, KERNEL, TABLE, TRAINED, Model, Setup
from simulated_rule import Rule, State

from distbench.evidence import Evidence, Measure, Traits
from distbench.fed import Fed
from distbench.split import shard_slices
from distbench.trace import INITIAL, WHOLE, Trace, TraceKey, Value

__all__ = (
    "BIAS",
    "HEAD",
    "KERNEL",
    "RIGHT",
    "TABLE",
    "TRAINED",
    "Fault",
    "Gradients",
    "Rule",
    "Run",
    "Setup",
    "Simulation",
    "add_up",
    "observe",
    "reduce_with",
)


def keep(value: Any, *_: Any) -> Any:
    return value


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Where a simulated cluster goes wrong; everything is right by default.

    Attributes:
        scale: Factor of replica r's loss and gradient: f(r, setup).
        penalty: Factor of the penalty in replica r: f(r, setup); right is 1/N.
        loss: The reported loss: f(loss, r).
        local: The local gradients: f(gradients, r, step).
        reduce: Reduced gradients by replica from the local ones: f(locals, step).
        transform: Applied gradients: f(gradients, r, step).
        update: State after the update: f(new, old, gradients, run).
        start: Initial state of a replica: f(state, r).
    """

    scale: Callable[[int, Setup], float] = lambda r, setup: 1.0
    penalty: Callable[[int, Setup], float] = lambda r, setup: 1.0 / setup.replicas
    loss: Callable[..., Any] = keep
    local: Callable[..., Any] = keep
    reduce: Callable[..., Any] | None = None
    transform: Callable[..., Any] = keep
    update: Callable[..., Any] = keep
    start: Callable[..., Any] = keep


RIGHT = Fault()


class Simulation(Model):
    """One scenario on one device and on a simulated cluster."""

    def record(self, values: dict, step: int, taps: Mapping, replica: int) -> None:
        for phase, found in taps.items():
            for path, value in found.items():
                values[
                    TraceKey(step=step, phase=phase, variable=path, replica=replica)
                ] = value

    def record_state(self, values: dict, step: int, state: State, replica: int) -> None:
        for info in self.infos:
            key = TraceKey(
                step=step, phase=info.role, variable=info.path, replica=replica
            )
            values[key] = np.array(state[info.path])

    def make_trace(self, name: str, values: dict, **notes: Any) -> Trace:
        return Trace(
            name=name,
            replicas=self.setup.replicas,
            shards=self.shards,
            variables=self.infos,
            values=values,
            notes=notes,
        )

    # Besides what overflows on purpose, a matrix product of finite numbers may set the
    # flag of an invalid one: BLAS computes in lanes that hold no numbers of it.
    @np.errstate(all="ignore")
    def observe(self, fault: Fault = RIGHT) -> Evidence:
        setup = self.setup
        everyone = range(setup.replicas)
        slices = shard_slices(self.shards)
        parts = [list(range(s.start, s.stop)) for s in slices]
        reference: dict = {}
        observed: dict = {}
        twins: list[dict] = [{} for _ in range(3)]
        started: list[Sequence[State]] = []
        holders = range(1) if setup.central else everyone
        self.record_state(reference, INITIAL, self.initial, WHOLE)
        states = [fault.start(dict(self.initial), r) for r in everyone]
        for r in holders:
            self.record_state(observed, INITIAL, states[r], r)
        state = self.initial
        twin_states = [self.initial] * 3
        memory: dict = {}
        for step, batch in enumerate(self.batches):
            before = self.start_of(step, state)
            taps, state = self.step_one(before, batch, range(self.examples))
            self.record(reference, step, taps, WHOLE)
            self.record_state(reference, step, state, WHOLE)
            self._record_shards(reference, step, before, batch, parts)
            for number, twin in enumerate(twins):
                start = twin_states[number] if setup.tier == "free" else before
                if number:
                    start = {k: self.perturb(v) for k, v in start.items()}
                order = self.rng.permutation(self.examples)
                seen, twin_states[number] = self.step_one(start, batch, order)
                self.record(twin, step, seen, WHOLE)
                self.record_state(twin, step, twin_states[number], WHOLE)
            starts = states if setup.tier == "free" else [before for _ in everyone]
            states = self._step_cluster(
                fault, step, batch, parts, starts, observed, holders, memory
            )
            started.append(starts)
        twin_traces = tuple(self.make_trace("twin", twin) for twin in twins)
        if setup.tier == "exact":
            twin_traces = ()
        replays: dict[Any, Trace] = {}
        repeated: tuple[Trace, ...] = ()
        decayed: tuple[Trace, ...] = ()
        counted: tuple[Trace, ...] = ()
        recounted: tuple[Trace, ...] = ()
        overwritten: tuple[Trace, ...] = ()
        if setup.tier != "free":
            fed = ("reduced_gradient", "applied_gradient")
            replays = {p: self._replay(p, observed, started) for p in fed}
            state = replays["reduced_gradient"].values.items()
            if any(
                not np.array_equal(value, observed[key], equal_nan=True)
                for key, value in state
                if key.phase in ("slot", "variable")
            ):  # what follows from one update asks for no other
                phase = "local_gradient"
                replays[phase] = self._replay(phase, observed, started)
                repeated = tuple(self._repeat(observed, started))
                decayed = tuple(self._decay_again(observed, started))
                counted = tuple(self._count_otherwise(observed, started))
                recounted = tuple(self._count_replicas_again(observed, started))
                overwritten = tuple(self._overwrite_rows(observed, started))
        draws = None if setup.draws is None else dict.fromkeys(setup.draws, "subject")
        return Evidence(
            tier=setup.tier,
            observed=self.make_trace("simulated", observed),
            reference=self.make_trace("reference", reference, draws=draws),
            twins=twin_traces,
            penalty=self._make_penalty(),
            fed=Fed(
                replays=replays,
                repeated=repeated,
                decayed=decayed,
                counted=counted,
                recounted=recounted,
                overwritten=overwritten,
            ),
            measure=Measure(shards_known=setup.shards_known),
            subject=Traits(loss_reduction=setup.loss_reduction),
        )

    def _record_shards(
        self, values: dict, step: int, before: State, batch: Any, parts: Any
    ) -> None:
        n = self.setup.replicas
        for r, examples in enumerate(parts):
            loss, local = self.compute(before, batch, examples, 1 / n)
            if not self.setup.shards_known:
                # The program alone takes its shard for the whole batch.
                factor = self.examples / max(1, self.weights[examples].sum())
                loss = loss * loss.dtype.type(factor)
                local = {k: scale(v, factor) for k, v in local.items()}
            taps = {"loss": {"": loss}, "local_gradient": local}
            self.record(values, step, taps, r)

    def _step_cluster(
        self,
        fault: Fault,
        step: int,
        batch: Any,
        parts: Any,
        starts: Sequence[State],
        observed: dict,
        holders: Any,
        memory: dict,
    ) -> list[State]:
        setup = self.setup
        everyone = range(setup.replicas)
        locals_: list[Gradients] = []
        for r in everyone:
            part = fault.penalty(r, setup)
            factor = fault.scale(r, setup)
            loss, local = self.compute(starts[r], batch, parts[r], part)
            if factor != 1:
                loss = loss * loss.dtype.type(factor)
                local = {k: scale(v, factor) for k, v in local.items()}
            local = fault.local(local, r, step)
            locals_.append(local)
            taps = {"loss": {"": fault.loss(loss, r)}, "local_gradient": local}
            self.record(observed, step, taps, r)
        if setup.summed_first and fault is not RIGHT:
            total = add_up(locals_)
            locals_ = [total for _ in everyone]
            for r in everyone:
                self.record(observed, step, {"local_gradient": total}, r)
        order = self.rng.permutation(setup.replicas)
        if fault.reduce is None:
            total = add_up([locals_[r] for r in order])
            reduced = [total for _ in everyone]
        else:
            reduced = fault.reduce(locals_, step)
        new = []
        for r in everyone:
            applied = fault.transform(setup.rule.transform(reduced[r]), r, step)
            memory.setdefault(step, []).append(applied)
            state = setup.rule.update(starts[r], applied)
            run = Run(rule=setup.rule, locals=locals_, replica=r, step=step)
            state = fault.update(state, starts[r], applied, run)
            new.append(state)
            if r in holders:
                taps = {"reduced_gradient": reduced[r], "applied_gradient": applied}
                self.record(observed, step, taps, r)
                self.record_state(observed, step, state, r)
        return new

    def _list_fed(
        self, phase: str, observed: dict, started: Sequence[Sequence[State]]
    ) -> Iterator[tuple[int, int, State, Gradients]]:
        """Of each step and replica the state before, and the gradients of a phase."""
        found: dict[tuple[int, int], Gradients] = {}
        for key, value in observed.items():
            if key.phase == phase:
                found.setdefault((key.step, key.replica), {})[key.variable] = value
        holders = range(1 if self.setup.central else self.setup.replicas)
        for step, states in enumerate(started):
            for r in holders:
                yield step, r, states[r], found[step, r]

    def _replay(
        self, phase: str, observed: dict, started: Sequence[Sequence[State]]
    ) -> Trace:
        values: dict = {}
        for step, r, start, gradients in self._list_fed(phase, observed, started):
            applied = gradients
            if phase != "applied_gradient":
                applied = self.setup.rule.transform(gradients)
            state = self.setup.rule.update(start, applied)
            self.record(values, step, {"applied_gradient": applied}, r)
            self.record_state(values, step, state, r)
        return self.make_trace(f"replay {phase}", values)

    def _repeat(
        self, observed: dict, started: Sequence[Sequence[State]]
    ) -> Iterator[Trace]:
        """The update of the observed reduced gradients, several times in one step."""
        fed = list(self._list_fed("reduced_gradient", observed, started))
        for times, slots_kept in product((2, 3, 4), (True, False)):
            values: dict = {}
            for step, r, start, reduced in fed:
                applied = self.setup.rule.transform(reduced)
                state = self.setup.rule.update(start, applied)
                for _ in range(times - 1):
                    if not slots_kept:
                        model = {path: state[path] for path in TRAINED}
                        state = {**start, **model}
                    state = self.setup.rule.update(state, applied)
                self.record_state(values, step, state, r)
            yield self.make_trace("repeated", values, times=times)

    def _decay_again(
        self, observed: dict, started: Sequence[Sequence[State]]
    ) -> Iterator[Trace]:
        """The update of variables that are N times as large, and slots in the second.

        None where nothing decays.
        """
        rule, times = self.setup.rule, self.setup.replicas
        if times < 2 or not (rule.decay or rule.inner or rule.shrink):
            return
        fed = list(self._list_fed("reduced_gradient", observed, started))
        for whole in (False, True):
            values: dict = {}
            for step, r, start, reduced in fed:
                larger = {
                    path: array * array.dtype.type(times)
                    if path in TRAINED or (whole and path != "iterations")
                    else array
                    for path, array in start.items()
                }
                state = rule.update(larger, rule.transform(reduced))
                back = {k: (v - larger[k] + start[k]) for k, v in state.items()}
                self.record_state(values, step, back, r)
            yield self.make_trace("decayed", values, times=times, whole=whole)

    def _count_otherwise(
        self, observed: dict, started: Sequence[Sequence[State]]
    ) -> Iterator[Trace]:
        """The update of the observed reduced gradients, by other counters of steps."""
        rule, n = self.setup.rule, self.setup.replicas
        if not rule.counts:
            return
        fed = list(self._list_fed("reduced_gradient", observed, started))
        for name, count in (
            ("N (t + 1) - 1", lambda t: n * (t + 1) - 1),
            ("N t", lambda t: n * t),
            ("t // N", lambda t: t // n),
        ):
            values: dict = {}
            for step, r, start, reduced in fed:
                moved = {**start, "iterations": count(start["iterations"])}
                state = rule.update(moved, rule.transform(reduced))
                state["iterations"] = start["iterations"] + 1
                self.record_state(values, step, state, r)
            yield self.make_trace("counted", values, count=name)

    def _count_replicas_again(
        self, observed: dict, started: Sequence[Sequence[State]]
    ) -> Iterator[Trace]:
        """The update of an N-th of the reduced gradients, and of N times as much.

        And that of a rule that is told of N replicas, if it asks for their number.
        """
        rule, n = self.setup.rule, self.setup.replicas
        if n < 2:
            return
        told = rule.told(n)
        tried = [(rule, 1 / n, {"factor": 1 / n}), (rule, n, {"factor": float(n)})]
        if told != rule:
            tried.append((told, 1, {"told": n}))
        fed = list(self._list_fed("reduced_gradient", observed, started))
        for used, factor, notes in tried:
            values: dict = {}
            for step, r, start, reduced in fed:
                scaled = {path: scale(g, factor) for path, g in reduced.items()}
                state = used.update(start, used.transform(scaled))
                self.record_state(values, step, state, r)
            yield self.make_trace("recounted", values, **notes)

    def _overwrite_rows(
        self, observed: dict, started: Sequence[Sequence[State]]
    ) -> Iterator[Trace]:
        """The update of reduced gradients of which not all slices of a row count."""
        rule = self.setup.rule
        fed = list(self._list_fed("reduced_gradient", observed, started))
        for name in ("last", "first", "mean"):
            values: dict = {}
            for step, r, start, reduced in fed:
                kept = {path: keep_slices(g, name) for path, g in reduced.items()}
                state = rule.update(start, rule.transform(kept))
                self.record_state(values, step, state, r)
            yield self.make_trace("overwritten", values, kept=name)

    def _make_penalty(self) -> Trace | None:
        lam = self.setup.penalty
        if not lam or not self.setup.shards_known:
            return None
        value = (lam * self.initial[KERNEL]).astype(self.setup.dtype)
        key = TraceKey(step=0, phase="local_gradient", variable=KERNEL)
        return self.make_trace("penalty", {key: value})


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a fault in the update may know."""

    rule: Rule
    locals: Sequence[Gradients]
    replica: int
    step: int


def reduce_with(combine: Callable[[list[Value]], Value]) -> Callable[..., Any]:
    """A reduction that gives every replica the same, variable by variable."""

    def reduce(locals_: Sequence[Gradients], step: int) -> list[Gradients]:
        total = {k: combine([g[k] for g in locals_]) for k in locals_[0]}
        return [total for _ in locals_]

    return reduce


def observe(fault: Fault = RIGHT, **setup: Any) -> Evidence:
    """The evidence of a run with a fault."""
    return Simulation(Setup(**setup)).observe(fault)
