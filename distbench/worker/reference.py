"""The single-device run: what every replica should have done."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from distbench.evidence import Tier
from distbench.scenario import Scenario
from distbench.split import shard_slices, split_unevenly
from distbench.trace import (
    INITIAL,
    WHOLE,
    Phase,
    SparseRows,
    Trace,
    TraceKey,
    Value,
)
from distbench.worker.batches import digest_batch
from distbench.worker.failures import SubjectError
from distbench.worker.optimizer_program import OptimizerProgram
from distbench.worker.program import count_batch
from distbench.worker.session import Session, State

_HANDED: tuple[Phase, ...] = ("loss", "local_gradient")
"""What a replica computes by itself."""
_TWINS = 4
_TWINS_OF_CHANCE = 16
"""Twins of a step that draws random numbers: its noise is large, and few samples of it
would give a limit beyond any error that matters."""
_MOST_TIMES = 8
"""How often an update is repeated at most: tried are all counts up to N, and to 4."""


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
        batch = self._draw(0)
        self._starts: dict[Tier, list[State]] = {}
        self.examples = count_batch(batch)
        self.shards = split_examples(scenario, self.examples, replicas)
        self._whole = session.make_step()
        # The share of a penalty is a constant of the trace, so the step of a shard
        # needs a trace of its own; one without the update costs half as much.
        self._shard = (
            session.make_step(program.local_step)
            if program.shards_known
            else self._whole
        )
        session.prepare(self._whole, self._place(batch))
        self._narrowest = find_narrowest(
            self._whole.get_concrete_function(self._place(batch)).graph
        )
        self.initial = session.read_state()
        self._fed_step: Any = None
        self._fed_kinds: tuple[Phase, dict[Any, bool]] | None = None
        self._repeats = program.shards_known or self._find_repeats(batch)
        self._twins = _TWINS if self._repeats else _TWINS_OF_CHANCE

    def _find_repeats(self, batch: Any) -> bool:
        """Whether a step that is run again repeats its loss and gradients."""
        runs = []
        for _ in range(2):
            self.session.restore_state(self.initial)
            self.run_whole(batch)
            values: dict[TraceKey, Value] = {}
            self._collect_taps(0, values, WHOLE, _HANDED)
            runs.append(values)
        first, second = runs
        return all(_are_equal(first.get(key), second[key]) for key in second)

    def _draw(self, step: int) -> Any:
        with self.session.guard("data"):
            return self.session.program.data(step)

    def _place(self, batch: Any) -> Any:
        return self.session.distribute([batch])

    def run_whole(self, batch: Any) -> None:
        """One step on the global batch."""
        self.session.program.replicas = 1
        with self.session.guard("step"):
            self._whole(self._place(batch))

    def run_shard(self, batch: Any) -> None:
        """One step on a shard, as one of N replicas computes its loss."""
        self.session.program.replicas = self.replicas
        with self.session.guard("step"):
            self._shard(self._place(batch))

    def _runs_shard(self, batch: Any) -> bool:
        """One step on a shard; False where a program takes a whole batch alone."""
        try:
            self.run_shard(batch)
        except SubjectError:
            if self.session.program.shards_known:
                raise
            return False
        return True

    def record(self, tier: Tier) -> tuple[Trace, tuple[Trace, ...]]:
        """Run all steps of a tier; returns the reference and its twins."""
        values: dict[TraceKey, Value] = {}
        twins: list[dict[TraceKey, Value]] = [{} for _ in range(self._twins)]
        session = self.session
        self._collect(INITIAL, values, self.initial)
        state = self.initial
        twin_states = [self.initial] * self._twins
        starts = self._starts[tier] = []
        own: list[State] = [{} for _ in self.shards]
        digests: list[str] = []
        for step in range(self.scenario.steps):
            before = self.start_of(tier, step, state)
            starts.append(before)
            batch = self._draw(step)
            digests.append(digest_batch(batch))
            for replica, shard in enumerate(cut_batch(batch, self.shards)):
                session.restore_state({**before, **own[replica]})
                if self._runs_shard(shard):
                    self._collect_taps(step, values, replica, _HANDED)
                    own[replica] = self._read_own()
                    self._collect(step, values, own[replica], replica)
            session.restore_state(before)
            self.run_whole(batch)
            state = session.read_state()
            self._collect_taps(step, values, WHOLE, None)
            self._collect(step, values, state)
            if tier == "exact":
                continue
            for number, twin in enumerate(twins):
                start = twin_states[number] if tier == "free" else before
                twin_states[number] = self._run_twin(
                    tier, number, step, start, batch, twin
                )
        trace = self._make_trace(
            "reference",
            tier,
            values,
            batches=digests,
            repeats=self._repeats,
            narrowest=self._narrowest,
        )
        made = tuple(
            self._make_trace(f"twin {number}", tier, twin, permuted=_permutes(number))
            for number, twin in enumerate(twins)
            if twin
        )
        return trace, made

    def sums_exactly(self, trace: Trace) -> bool:
        """Whether what the replicas add up can be added up without rounding.

        The data's own gradients are proved to be. A rule that changes gradients before
        the sum may round itself: then its results use up all digits, and the sum of
        what it makes of the shards need not be what it makes of their sum.
        """
        bits = 1 + math.ceil(math.log2(max(2, self.replicas)))
        return all(
            _are_equal(trace.get(replace(key, phase="local_gradient")), value)
            or _leaves_digits(value, bits)
            for key, value in trace.select(phase="reduced_gradient", replica=WHOLE)
        )

    def start_of(self, tier: Tier, step: int, state: State) -> State:
        """The state from which a step starts, given that after the one before."""
        if tier != "exact" or step == 0:
            return state
        model = {v.path for v in self.session.variables if v.role == "variable"}
        return {
            key: self.initial[key] if key[0] in model else array
            for key, array in state.items()
        }

    def _run_twin(
        self,
        tier: Tier,
        number: int,
        step: int,
        start: State,
        batch: Any,
        values: dict[TraceKey, Value],
    ) -> State:
        """A run that differs from the reference by rounding alone.

        Half of them have the examples in another order: a program to which that
        matters still has the others.
        """
        rng = np.random.default_rng((self.scenario.seed, number, step))
        if number > 0:
            # A free run has no shard to be held against, so its twins must show all
            # the rounding that there is, that of a narrower dtype in the step too.
            narrow = self._narrowest if tier == "free" else None
            start = {k: _perturb(array, rng, narrow) for k, array in start.items()}
        order = np.arange(self.examples)
        if _permutes(number):
            order = rng.permutation(order)
        self.session.restore_state(start)
        self.run_whole(tf.nest.map_structure(lambda a: np.asarray(a)[order], batch))
        state = self.session.read_state()
        self._collect_taps(step, values, WHOLE, None)
        self._collect(step, values, state)
        return state

    def record_probes(self) -> Mapping[str, Trace]:
        """What tells whether a program's result depends on how examples are grouped.

        Returns:
            `regrouped`: loss and local gradient of shards of the same sizes that hold
            other examples of the first batch. `doubled`: those of the largest shard
            with every example twice. Both of step 0. Empty for a
            workload of the bench, whose loss is a sum over examples.
        """
        if self.session.program.shards_known:
            return {}
        batch = self._draw(0)
        order = np.random.default_rng((self.scenario.seed, self.examples)).permutation(
            self.examples
        )
        regrouped = tf.nest.map_structure(lambda a: np.asarray(a)[order], batch)
        largest = int(np.argmax(self.shards))
        shard = list(cut_batch(batch, self.shards))[largest]
        doubled = tf.nest.map_structure(lambda a: np.concatenate([a, a]), shard)
        return {
            "regrouped": self._probe(
                "regrouped", dict(enumerate(cut_batch(regrouped, self.shards)))
            ),
            "doubled": self._probe("doubled", {largest: doubled}),
        }

    def record_distinct(self, tier: Tier, reference: Trace) -> Trace | None:
        """The first step's update with repeated rows of its gradients added up.

        None where no gradient has any. A rule for sparse gradients should not care.
        """
        handed = {
            replace(key, replica=0): value
            for key, value in reference.select(
                step=0, phase="reduced_gradient", replica=WHOLE
            )
        }
        distinct = {key: _add_rows(value) for key, value in handed.items()}
        if all(distinct[key] is handed[key] for key in handed):
            return None
        fed = replace(reference, replicas=1, values=distinct)
        return self._feed(tier, fed, "reduced_gradient")[0]

    def _probe(self, name: str, shards: Mapping[int, Any]) -> Trace:
        values: dict[TraceKey, Value] = {}
        for replica, shard in shards.items():
            self.session.restore_state(self.initial)
            if self._runs_shard(shard):
                self._collect_taps(0, values, replica, _HANDED)
        return self._make_trace(name, "bounded", values)

    def record_penalty(self) -> Trace | None:
        """The gradient of the regularisation alone, where the workload knows it."""
        program = self.session.program
        if not isinstance(program, OptimizerProgram):
            return None
        self.session.restore_state(self.initial)
        pairs = program.compute_penalty_gradient()
        if not pairs:
            return None
        values: dict[TraceKey, Value] = {
            TraceKey(
                step=0,
                phase="local_gradient",
                variable=self.session.table.find_path(variable),
            ): np.array(tf.convert_to_tensor(gradient).numpy())
            for variable, gradient in pairs
        }
        return self._make_trace("penalty", "bounded", values)

    def replay(self, tier: Tier, observed: Trace) -> Mapping[str, Trace]:
        """Feed observed values into the single-device update.

        Returns:
            By the phase where they were fed: what follows from each replica's observed
            reduced gradient; where the applied gradient is not what follows, also what
            follows from that; where the state is not, what would follow from each
            replica's local gradient.
        """
        if tier == "free":
            return {}  # The cluster's steps did not start from the reference's state.
        [reduced] = self._feed(tier, observed, "reduced_gradient")
        replays = {"reduced_gradient": reduced}
        if _differ(observed, reduced, ("applied_gradient",)):
            [fed] = self._feed(tier, observed, "applied_gradient")
            replays["applied_gradient"] = fed
        if _differ(observed, reduced, ("slot", "variable")):
            # A rule may refuse what no replica would hand it; then nothing is learnt.
            with suppress(SubjectError):
                [fed] = self._feed(
                    tier, observed, "reduced_gradient", source="local_gradient"
                )
                replays["local_gradient"] = fed
        return replays

    def repeat(
        self, tier: Tier, observed: Trace, once: Trace | None
    ) -> tuple[Trace, ...]:
        """Apply the update to observed reduced gradients 2, 3, … times in one step.

        In half of the traces the slots take it once and the variables alone again.

        Args:
            tier: The tier that was observed.
            observed: What the cluster did.
            once: The update applied once. Where the state is what follows from it,
                nothing was repeated, and the answer is empty.
        """
        if once is None or not _differ(observed, once, ("slot", "variable")):
            return ()
        times = min(max(4, self.replicas), _MOST_TIMES)
        found = []
        for kept in (("slot", "variable"), ("variable",)):
            with suppress(SubjectError):
                [_, *again] = self._feed(
                    tier, observed, "reduced_gradient", times=times, kept=kept
                )
                found += again
        return tuple(found)

    def _feed(
        self,
        tier: Tier,
        observed: Trace,
        phase: Any,
        source: Any = None,
        times: int = 1,
        kept: tuple[str, ...] = ("slot", "variable"),
    ) -> list[Trace]:
        """Feed a phase of the one-device step; a trace for each time that it ran.

        Between two times state of a role that is not `kept` is put back; so are
        counters of steps, unless the cluster's went on by more than one as well.
        """
        session, board = self.session, self.session.board
        found: list[dict[TraceKey, Value]] = [{} for _ in range(times)]
        board.feeding = phase
        try:
            # A step that is random would not lead to the same states once more.
            for step, before in enumerate(self._starts[tier]):
                batch = self._draw(step)
                for replica in range(observed.replicas):
                    board.fed = {
                        (key.call, phase, key.variable): _make_alike(
                            value, observed.get(replace(key, phase=phase))
                        )
                        for key, value in observed.select(
                            step=step, phase=source or phase, replica=replica
                        )
                    }
                    if not board.fed:
                        continue
                    fed_step = self._make_fed_step(phase)
                    session.restore_state(before)
                    again = self._find_again(observed, step, before, kept)
                    for values in found:
                        if values is not found[0]:
                            session.write_state(again)
                        self._run_fed(fed_step, batch)
                        self._collect_taps(step, values, replica, None)
                        self._collect(step, values, session.read_state(), replica)
        finally:
            board.feeding, board.fed = None, {}
        name = f"replay of {source or phase}"
        return [
            self._make_trace(name, tier, values, times=number, kept=kept)
            for number, values in enumerate(found, 1)
        ]

    def _make_fed_step(self, phase: Phase) -> Any:
        """A step that takes what the board feeds; traced anew only for other kinds."""
        board = self.session.board
        kinds = {place: isinstance(v, SparseRows) for place, v in board.fed.items()}
        if self._fed_step is None or self._fed_kinds != (phase, kinds):
            board.forget()
            self._fed_step = self.session.make_step()
            self._fed_kinds = phase, kinds
        return self._fed_step

    def _find_again(
        self, observed: Trace, step: int, before: State, kept: tuple[str, ...]
    ) -> dict[str, npt.NDArray[np.generic]]:
        """The state that is put back before an update is repeated."""
        found = {}
        for variable in self.session.variables:
            start = before.get((variable.path, 0))
            if start is None or variable.role in kept:
                continue
            if variable.role != "iterations" or _went_on_by_one(
                observed, step, variable.path, start
            ):
                found[variable.path] = start
        return found

    def _run_fed(self, step: Any, batch: Any) -> None:
        placed = self._place(batch)
        self.session.program.replicas = 1
        with self.session.guard("step"):
            # The feeds come into being while the step is traced.
            step.get_concrete_function(placed)
            self.session.board.set_feeds()
            step(placed)

    def _collect_taps(
        self,
        step: int,
        values: dict[TraceKey, Value],
        replica: int,
        phases: tuple[str, ...] | None,
    ) -> None:
        seen: dict[TraceKey, Value] = {}
        self.session.collect_taps(step, seen)
        for key, value in seen.items():
            if phases is None or key.phase in phases:
                values[replace(key, replica=replica)] = value

    def _collect(
        self,
        step: int,
        values: dict[TraceKey, Value],
        state: State,
        replica: int = WHOLE,
    ) -> None:
        seen: dict[TraceKey, Value] = {}
        self.session.collect_state(step, state, seen)
        for key, value in seen.items():
            values[replace(key, replica=replica)] = value

    def _read_own(self) -> State:
        """The state that every replica has for itself, after the step of a shard.

        Nothing for a workload of the bench, whose step of a shard updates nothing.
        """
        own = {v.path for v in self.session.variables if not v.synchronised}
        if not own or self.session.program.shards_known:
            return {}
        state = self.session.read_state()
        return {key: array for key, array in state.items() if key[0] in own}

    def _make_trace(
        self, name: str, tier: Tier, values: dict[TraceKey, Value], **notes: object
    ) -> Trace:
        return Trace(
            name=name,
            replicas=self.replicas,
            shards=self.shards,
            variables=self.session.variables,
            values=values,
            notes={"tier": tier, **notes},
        )


def find_narrowest(graph: Any) -> str:
    """The floating-point dtype with the fewest digits in which a step computes."""
    definition = graph.as_graph_def()
    nodes = [
        *definition.node,
        *(n for f in definition.library.function for n in f.node_def),
    ]
    seen = {attribute.type for node in nodes for attribute in node.attr.values()}
    for dtype in (tf.bfloat16, tf.float16, tf.float32):
        if dtype.as_datatype_enum in seen:
            return str(dtype.name)
    return "float64"


def split_examples(scenario: Scenario, examples: int, replicas: int) -> tuple[int, ...]:
    """The examples of each replica: as the scenario says, or unevenly."""
    return scenario.split or split_unevenly(examples, replicas)


def cut_batch(batch: Any, shards: tuple[int, ...]) -> Iterator[Any]:
    """The shard of each replica."""
    for part in shard_slices(shards):
        yield tf.nest.map_structure(lambda a, part=part: np.asarray(a)[part], batch)


def _add_rows(value: Value) -> Value:
    """A sparse value with each row once; anything else as it is."""
    if not isinstance(value, SparseRows):
        return value
    rows, places = np.unique(value.indices, return_inverse=True)
    if len(rows) == len(value.indices):
        return value
    sums = np.zeros((len(rows), *value.values.shape[1:]), value.values.dtype)
    np.add.at(sums, places, value.values)
    return replace(value, indices=rows, values=sums)


def _make_alike(value: Value, seen: Value | None) -> Value:
    """Dense where what it stands in for was: a rule may take nothing else."""
    is_dense = seen is not None and not isinstance(seen, SparseRows)
    return value.to_dense() if isinstance(value, SparseRows) and is_dense else value


def _went_on_by_one(
    observed: Trace, step: int, path: str, start: npt.NDArray[np.generic]
) -> bool:
    seen = observed.select(step=step, phase="iterations", variable=path)
    return all(np.array_equal(np.asarray(value), start + 1) for _, value in seen)


_SIGNIFICANDS = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}


def _leaves_digits(value: Value, bits: int) -> bool:
    """Whether the last digits of every number of a value are zeros."""
    array = value.values if isinstance(value, SparseRows) else value
    digits = _SIGNIFICANDS.get(array.dtype.name, 53)
    wide = np.asarray(array, np.float64)
    top = float(np.max(np.abs(wide), initial=0.0))
    if top == 0 or not math.isfinite(top):
        return True
    unit = 2.0 ** (math.frexp(top)[1] - digits + bits)
    return not np.any(wide % unit)


def _permutes(twin: int) -> bool:
    return twin % 2 == 0


_EPSILONS = {"bfloat16": 2.0**-7, "float16": 2.0**-10, "float32": 2.0**-23}


def _perturb(array: Any, rng: np.random.Generator, narrow: str | None) -> Any:
    """Move every floating-point element by one rounding, up or down.

    Args:
        array: A variable's value.
        rng: Chooses the way.
        narrow: A dtype with fewer digits whose rounding is taken instead.
    """
    name = array.dtype.name
    if array.dtype.kind != "f" and name != "bfloat16":
        return array
    unit = _EPSILONS.get(name, 2.0**-52)
    if narrow is not None:
        unit = max(unit, _EPSILONS.get(narrow, 0.0))
    signs = rng.choice([-0.5, 0.5], size=array.shape)
    return (array.astype(np.float64) * (1 + signs * unit)).astype(array.dtype)


def _differ(observed: Trace, expected: Trace, phases: tuple[str, ...]) -> bool:
    return any(
        not _are_equal(observed.get(key), value)
        for key, value in expected.values.items()
        if key.phase in phases
    )


def _are_equal(left: Value | None, right: Value) -> bool:
    if left is None:
        return True
    if isinstance(left, SparseRows) or isinstance(right, SparseRows):
        dense = [
            v.to_dense() if isinstance(v, SparseRows) else v for v in (left, right)
        ]
        return bool(np.array_equal(dense[0], dense[1]))
    return left.tobytes() == right.tobytes()
