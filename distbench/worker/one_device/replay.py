"""What follows on one device from values that a cluster was seen to have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from distbench.evidence import Tier
from distbench.trace import (
    SUMMED,
    WHOLE,
    Phase,
    Selection,
    SparseRows,
    Trace,
    TraceKey,
    Value,
    Values,
)
from distbench.worker.one_device.fed import FedStep
from distbench.worker.one_device.reference import Reference
from distbench.worker.one_device.reruns import run_op_by_op
from distbench.worker.one_device.sums import (
    NARROW,
    Sum,
    add_gradients,
    list_narrow_sums,
    list_sums,
    mix_sums,
)
from distbench.worker.process.failures import SubjectError
from distbench.worker.state.values import add_rows, are_equal, make_alike
from distbench.worker.stepping.steps import Step
from distbench.worker.taps.collect import State

_MOST_TIMES = 8
"""How often an update is repeated at most: tried are all counts up to N, and to 4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """What follows from the observed gradients.

    Attributes:
        fed: By the phase where values were fed: what follows from each replica's
            observed reduced gradient; where the applied gradient is not what follows,
            also what follows from that; where the state is not, what would follow from
            each replica's local gradient.
        is_explained: Whether the state is what follows from the reduced gradients.
        op_by_op: What follows from the reduced gradients where no op is joined with
            another, if XLA may have done so and the state is not what follows.
        repeated: The update applied several times in one step; empty where the state
            is what follows from applying it once.
        turns: The update with one replica's gradient after the other, where all
            replicas share their variables and the state is not what follows.
    """

    fed: Mapping[Phase, Trace] = field(default_factory=dict)
    is_explained: bool = True
    op_by_op: Trace | None = None
    repeated: tuple[Trace, ...] = ()
    turns: Trace | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summed:
    """What sums that a program may make by hand would lead to.

    Attributes:
        tried: The state after each way to sum, as that of replica 0; the notes say
            which it was. Empty where the right one leads to what the cluster has.
        kept: Variables of the model that follow from the gradients of others.
    """

    tried: tuple[Trace, ...] = ()
    kept: tuple[str, ...] = ()


class Replay:
    """Runs the single-device step with values from outside in place of its own.

    Args:
        reference: Ran all its steps before.
    """

    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        self._fed = FedStep(reference.session)

    def follow(self, tier: Tier, observed: Trace) -> Followed:
        """Feed observed values into the single-device update.

        Where the state is what follows from the reduced gradients, no more is asked.
        """
        if tier == "free" or not self.reference.session.tapped:
            # The cluster's steps did not start from the reference's state, or nothing
            # can be put into them.
            return Followed()
        [reduced] = self._feed(tier, observed, "reduced_gradient")
        fed: dict[Phase, Trace] = {"reduced_gradient": reduced}
        if _differ(observed, reduced, ("applied_gradient",)):
            [fed["applied_gradient"]] = self._feed(tier, observed, "applied_gradient")
        if not _differ(observed, reduced, ("slot", "variable")):
            return Followed(fed=fed)
        # A rule may refuse what no replica would hand it; then nothing is learnt.
        with suppress(SubjectError):
            [fed["local_gradient"]] = self._feed(
                tier, observed, "reduced_gradient", source="local_gradient"
            )
        op_by_op = None
        if self.reference.scenario.jit:
            with run_op_by_op():
                [op_by_op] = self._feed(tier, observed, "reduced_gradient")
        return Followed(
            fed=fed,
            is_explained=False,
            op_by_op=op_by_op,
            repeated=tuple(self._repeat(tier, observed)),
            turns=self._take_turns(tier, observed) if _is_shared(observed) else None,
        )

    def trace_ahead(self, tier: Tier, reference: Trace) -> None:
        """Trace the step that takes its gradients from outside, by the reference's own.

        Tracing and the first run take most of the time, and need nothing of a cluster.
        """
        if tier == "free" or not self.reference.session.tapped:
            return
        handed = _take_reduced(reference)
        first = min((key.step for key in handed), default=0)
        fed = handed.keep(lambda key: key.step == first)
        with suppress(SubjectError):
            self._feed(
                tier, replace(reference, replicas=1, values=fed), "reduced_gradient"
            )

    def change_apart(
        self, tier: Tier, reference: Trace, observed: Trace, *, is_explained: bool
    ) -> Trace | None:
        """What one device makes of each replica's own gradients.

        None where it hands on its own as they are, and the cluster's state is known.

        Args:
            tier: Which one.
            reference: What one device recorded in it.
            observed: What the cluster recorded.
            is_explained: Whether its state is what follows from its reduced gradients.
        """
        if tier == "free" or not self.reference.session.tapped:
            return None
        if is_explained and _hands_on(reference):
            return None
        with suppress(SubjectError):
            return self._feed(tier, observed, "local_gradient")[0]
        return None

    def try_sums(
        self, tier: Tier, reference: Trace, observed: Trace, *, is_explained: bool
    ) -> Summed:
        """What one device comes to after sums that a program may make by hand.

        Asked where no sum was seen, where one device makes something else of a sum
        before it is, or where the model holds state that follows from gradients; and
        where the right sum does not lead to what the cluster has.

        Args:
            tier: Which one.
            reference: What one device recorded in it.
            observed: What the cluster recorded.
            is_explained: Whether its state is what follows from its reduced gradients.
        """
        if tier == "free" or not self.reference.session.tapped:
            return Summed()
        is_seen = any(key.phase in SUMMED for key in observed.values)
        changes = is_seen and not _hands_on(reference)
        if is_seen and is_explained and not changes:
            return Summed()
        right, *others = list_sums(observed.replicas)
        with suppress(SubjectError):
            due = self._feed_sum(tier, add_gradients(observed, right), right)
            if not _differ(observed, due, ("reduced_gradient", "variable")):
                return Summed()
            kept = () if is_explained and is_seen else self._find_kept(tier, reference)
            if kept or changes or not is_seen:
                tried = [
                    self._feed_sum(tier, add_gradients(observed, way), way)
                    for way in others
                ]
                tried += [
                    self._feed_narrow(tier, observed, list_narrow_sums(*which))
                    for which in product([observed.replicas], NARROW, (False, True))
                ]
                return Summed(tried=tuple(tried), kept=kept)
        return Summed()

    def _feed_narrow(self, tier: Tier, observed: Trace, ways: Sequence[Sum]) -> Trace:
        """Feed a sum in a narrow dtype, each element in the order that it shows."""
        fed = [add_gradients(observed, way) for way in ways]
        left = [self._feed_sum(tier, sums, ways[0]) for sums in fed]
        if len(left) == 1:
            return left[0]
        return self._feed_sum(tier, mix_sums(observed, fed, left), ways[0])

    def _feed_sum(self, tier: Tier, fed: Trace, way: Sum) -> Trace:
        [found] = self._feed(tier, fed, "local_gradient")
        return replace(found, notes={**found.notes, **asdict(way)})

    def _find_kept(self, tier: Tier, reference: Trace) -> tuple[str, ...]:
        """Variables that follow from the gradients of others, and not from examples."""
        own = Values(reference.values).keep(
            Selection(phase="local_gradient", replica=WHOLE).has
        )
        trained = {key.variable for key in own}
        fed = replace(reference, replicas=1, values=own.rename(lambda key: key.at(0)))
        try:
            [first], [other] = (
                self._feed(tier, fed, "local_gradient", change=change)
                for change in (None, _repeat_first)
            )
            still = replace(fed, values=_silence(fed.values))
            [silent] = self._feed(tier, still, "local_gradient")
        except SubjectError:
            return ()  # a program may take no other batch than its own
        moved, led = (_measure_distances(first, t) for t in (silent, other))
        return tuple(
            v.path
            for v in reference.variables
            if v.role == "variable"
            and v.path not in trained
            and v.path in moved
            and v.path not in led
        )

    def _repeat(self, tier: Tier, observed: Trace) -> Iterator[Trace]:
        """Apply the update to observed reduced gradients 2, 3, … times in one step.

        In half of the traces the slots take it once and the variables alone again.
        """
        times = min(max(4, self.reference.replicas), _MOST_TIMES)
        for kept in (("slot", "variable"), ("variable",)):
            with suppress(SubjectError):
                yield from self._feed(
                    tier, observed, "reduced_gradient", times=times, kept=kept
                )[1:]

    def _take_turns(self, tier: Tier, observed: Trace) -> Trace | None:
        """Apply the update once for each replica in a step, with its own gradient."""
        session = self.reference.session
        board = session.board
        values = session.make_values()
        phase: Phase = "reduced_gradient"
        board.feeding = phase
        try:
            for step, before in enumerate(self.reference.starts[tier]):
                batch = self.reference.draw(step)
                session.restore_state(before)
                for replica in range(observed.replicas):
                    board.fed = {
                        (key.call, phase, key.variable): value
                        for key, value in observed.select(
                            step=step, phase=phase, replica=replica
                        )
                    }
                    if not board.fed:
                        break
                    self._run_fed(self._fed.find(phase), batch)
                session.board.read()
                session.collect_state(step, session.read_state(), values, replica=0)
        except SubjectError:
            return None
        finally:
            board.feeding, board.fed = None, {}
        return self.reference.make_trace("turns", tier, values)

    def add_repeated_rows(self, tier: Tier, reference: Trace) -> Trace | None:
        """The first step's update with repeated rows of its gradients added up.

        None where no gradient has any. A rule for sparse gradients should not care.
        """
        handed = _take_reduced(reference, step=0)
        distinct = {key: add_rows(value) for key, value in handed.items()}
        if all(distinct[key] is handed[key] for key in handed):
            return None
        fed = replace(reference, replicas=1, values=distinct)
        return self._feed(tier, fed, "reduced_gradient")[0]

    def find_undetermined(
        self, tier: Tier, reference: Trace, observed: Trace, replay: Trace
    ) -> tuple[str, ...]:
        """State of which a replay does not tell what it has to be.

        Args:
            tier: Which one.
            reference: What one device recorded in it.
            observed: What the cluster recorded.
            replay: What follows on one device from its reduced gradients.
        """
        led = self._find_data_driven(tier, reference)
        unrepeated = self._find_unrepeated(tier, reference, observed, replay)
        return tuple(dict.fromkeys((*led, *unrepeated)))

    def _find_unrepeated(
        self, tier: Tier, reference: Trace, observed: Trace, replay: Trace
    ) -> Iterator[str]:
        """State that a replay misses on one device by as much as on the cluster.

        The reference's own gradients do not lead to the reference's state where a rule
        keeps a number of Python's, which moves when it is traced, or draws at random.
        """
        own = replace(reference, replicas=1, values=_take_reduced(reference))
        try:
            [again] = self._feed(tier, own, "reduced_gradient")
        except SubjectError:
            return
        missed = _measure_distances(again, reference, own_replica=WHOLE)
        strayed = _measure_distances(replay, observed)
        # The cluster's gradients are others by a rounding, so distances differ. What
        # makes one variable miss, a random number say, makes the others miss as well.
        if any(2 * missed[name] >= strayed.get(name, 0.0) for name in missed):
            yield from missed

    def _find_data_driven(self, tier: Tier, reference: Trace) -> Iterator[str]:
        """State that the same gradients lead elsewhere if the examples are others.

        Nothing of a workload of the bench: its optimizer sees gradients alone. What
        does not even repeat itself depends on chance, and not on the examples. Of all
        steps, since what starts at 0 may come back to it exactly in the first.
        """
        if self.reference.session.program.shards_known:
            return
        fed = replace(reference, replicas=1, values=_take_reduced(reference))
        try:
            first, again, other = (
                self._feed(tier, fed, "reduced_gradient", change=change)[0]
                for change in (None, None, _repeat_first)
            )
        except SubjectError:
            return  # a program may take no other batch than its own
        state = Values(first.values).keep(lambda key: key.phase in ("slot", "variable"))
        for key, value in state.items():
            if are_equal(again.get(key), value) and not are_equal(
                other.get(key), value
            ):
                yield key.variable

    def _feed(
        self,
        tier: Tier,
        observed: Trace,
        phase: Any,
        source: Any = None,
        times: int = 1,
        kept: tuple[str, ...] = ("slot", "variable"),
        change: Callable[[Any], Any] | None = None,
    ) -> list[Trace]:
        """Feed a phase of the one-device step; a trace for each time that it ran.

        The batch may be changed before, which is told by what no gradient carries.

        Between two times state of a role that is not `kept` is put back; so are
        counters of steps, unless the cluster's went on by more than one as well.
        """
        reference, session = self.reference, self.reference.session
        board = session.board
        found = [session.make_values() for _ in range(times)]
        board.feeding = phase
        try:
            # A step that is random would not lead to the same states once more.
            for step, before in enumerate(reference.starts[tier]):
                batch = reference.draw(step)
                if change is not None:
                    batch = change(batch)
                for replica in range(observed.replicas):
                    board.fed = {
                        (key.call, phase, key.variable): make_alike(
                            value, observed.get(replace(key, phase=phase))
                        )
                        for key, value in observed.select(
                            step=step, phase=source or phase, replica=replica
                        )
                    }
                    if not board.fed:
                        continue
                    fed_step = self._fed.find(phase)
                    session.restore_state(before)
                    session.begin_step(step)
                    again = {}
                    if times > 1:
                        # What happens between two steps happens once.
                        begun = session.read_state()
                        again = self._find_again(observed, step, begun, kept)
                    for values in found:
                        if values is not found[0]:
                            session.write_state(again)
                        self._run_fed(fed_step, batch)
                        session.collect_taps(step, values, replica=replica)
                        session.collect_state(
                            step, session.read_state(), values, replica=replica
                        )
        finally:
            board.feeding, board.fed = None, {}
        name = f"replay of {source or phase}"
        return [
            reference.make_trace(name, tier, values, times=number, kept=kept)
            for number, values in enumerate(found, 1)
        ]

    def _find_again(
        self, observed: Trace, step: int, before: State, kept: tuple[str, ...]
    ) -> dict[str, npt.NDArray[np.generic]]:
        """The state that is put back before an update is repeated."""
        found = {}
        for variable in self.reference.session.variables:
            start = before.get((variable.path, 0))
            if start is None or variable.role in kept:
                continue
            if variable.role != "iterations" or _went_on_by_one(
                observed, step, variable.path, start
            ):
                found[variable.path] = start
        return found

    def _run_fed(self, step: Step, batch: Any) -> None:
        session = self.reference.session
        session.program.replicas = 1
        with session.guard("step"):
            # The feeds come into being while the step is traced.
            step.trace([batch])
            session.board.set_feeds()
            step.run([batch])


def _hands_on(reference: Trace) -> bool:
    """Whether one device reduces the gradients of the whole batch as they are."""
    chosen = Selection(phase="local_gradient", replica=WHOLE)
    computed = Values(reference.values).keep(chosen.has)
    handed = _take_reduced(reference)
    return all(
        are_equal(handed.get(replace(key.at(0), phase="reduced_gradient")), value)
        for key, value in computed.items()
    )


def _take_reduced(reference: Trace, step: int | None = None) -> Values[TraceKey]:
    """The gradients of the whole batch, of one step or of all, as if of replica 0."""
    chosen = Selection(step=step, phase="reduced_gradient", replica=WHOLE)
    return Values(reference.values).keep(chosen.has).rename(lambda key: key.at(0))


def _silence(values: Mapping[TraceKey, Value]) -> Values[TraceKey]:
    """The same gradients, all of them 0."""
    found: Values[TraceKey] = Values()
    for key, value in values.items():
        if isinstance(value, SparseRows):
            found[key] = replace(value, values=np.zeros_like(value.values))
        else:
            found[key] = np.zeros_like(value)
    return found


def _measure_distances(
    left: Trace, right: Trace, own_replica: int | None = None
) -> dict[str, float]:
    """By variable, the most that any element of its state is apart.

    Args:
        left: State after steps.
        right: The same of another run.
        own_replica: The replica of the right run, if not the left one's.
    """
    distances: dict[str, float] = {}
    state = Values(left.values).keep(lambda key: key.phase in ("slot", "variable"))
    for key, value in state.items():
        other = right.get(key if own_replica is None else key.at(own_replica))
        if other is None:
            continue
        near, far = (np.asarray(v, np.float64) for v in (value, other))
        if near.shape == far.shape and not are_equal(value, other):
            distance = float(np.max(np.abs(near - far)))
            distances[key.variable] = max(distances.get(key.variable, 0.0), distance)
    return distances


def _repeat_first(batch: Any) -> Any:
    """A batch of the same shape in which all examples are the first one."""
    return tf.nest.map_structure(
        lambda a: np.repeat(np.asarray(a)[:1], len(a), axis=0), batch
    )


def _is_shared(observed: Trace) -> bool:
    """Whether one copy of the model's variables serves several replicas."""
    holders = {key.replica for key in observed.values if key.phase == "variable"}
    return observed.replicas > 1 and holders == {0}


def _went_on_by_one(
    observed: Trace, step: int, path: str, start: npt.NDArray[np.generic]
) -> bool:
    seen = observed.select(step=step, phase="iterations", variable=path)
    return all(np.array_equal(np.asarray(value), start + 1) for _, value in seen)


def _differ(observed: Trace, expected: Trace, phases: tuple[str, ...]) -> bool:
    """Whether values differ that are meant to be the same on every replica.

    What a replica keeps for itself follows from its own examples, and never from the
    global batch that one device was given beside the gradients.
    """
    own = {v.path for v in observed.variables if not v.synchronised}
    compared = Values(expected.values).keep(
        lambda key: key.phase in phases and key.variable not in own
    )
    return any(
        not are_equal(observed.get(key), value) for key, value in compared.items()
    )
