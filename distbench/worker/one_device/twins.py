"""Runs that differ from the reference by rounding alone: how far it moves a result."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from distbench.evidence import Tier
from distbench.trace import (
    GRADIENTS,
    STATE,
    WHOLE,
    Phase,
    Recorded,
    Trace,
    TraceKey,
    Value,
    Values,
)
from distbench.trace.numbers import densify, measure_gap
from distbench.worker.one_device.feeder import Feeder
from distbench.worker.one_device.held_against import take_whole
from distbench.worker.one_device.reference import Reference
from distbench.worker.process.failures import SubjectError
from distbench.worker.state.values import count_digits, find_counts, perturb
from distbench.worker.stepping.program import count_batch, take_examples
from distbench.worker.taps.collect import State, put_back

_MARGIN = 8
"""So many times as far as it takes a twin may rounding take what is made of shards, of
which each rounds by itself."""
_TWINS = 4
_ROUNDED: tuple[Phase, ...] = ("loss", *GRADIENTS)
_TWINS_OF_CHANCE = 16
"""Twins of a step that draws random numbers: its noise is large, and few samples of it
would give a limit beyond any error that matters."""


class Twins:
    """Runs the reference's steps again, slightly moved.

    Args:
        reference: Ran all its steps before.
    """

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self._counts: dict[Tier, set[tuple[str, int]]] = {}
        self._count = _TWINS if reference.repeats else _TWINS_OF_CHANCE
        self._takes_any_order = True
        self._recorded: dict[Tier, tuple[Trace, ...]] = {}

    def record(self, tier: Tier) -> tuple[Trace, ...]:
        """All steps of a tier; none of one in which nothing is rounded."""
        if tier != "exact":
            self._recorded[tier] = self._try_orders(self._record, tier)
        return self._recorded.get(tier, ())

    def find_margin(self, tier: Tier, key: TraceKey, value: Value) -> float:
        """How far rounding may take a gradient or loss from what one device has of it.

        That is much of one whose terms cancel, as of a bias before a softmax over what
        it is added to. Another order of the examples may be more than rounding. 0 where
        nothing tells: in a free run, twins have states of their own after a step.

        Args:
            tier: Of which twins were recorded.
            key: What the whole batch gives, or as part of it a shard.
            value: That of the whole batch.
        """
        twins = self._recorded.get(tier, ())
        if tier == "free" and key.step > 0:
            return 0.0
        moved = [t.get(key.at(WHOLE)) for t in twins if not t.notes.get("permuted")]
        due = densify(value)
        wide = [densify(other) for other in moved if other is not None]
        gap = max((measure_gap(due, array) for array in wide), default=0.0)
        return _MARGIN * gap if np.isfinite(gap) else 0.0

    def _try_orders(
        self, record: Callable[[Tier], tuple[Trace, ...]], tier: Tier
    ) -> tuple[Trace, ...]:
        """Record with some twins' examples in another order, if a program takes it.

        It may rely on theirs: ids that are sorted, times that go on.
        """
        try:
            return record(tier)
        except SubjectError:
            if not self._takes_any_order:
                raise
        self._takes_any_order = False
        return record(tier)

    def _permutes(self, twin: int) -> bool:
        return self._takes_any_order and twin % 2 == 0

    def _record(self, tier: Tier) -> tuple[Trace, ...]:
        reference = self._reference
        found = [reference.session.make_values() for _ in range(self._count)]
        states = [reference.starts.list_whole(tier)[0]] * self._count
        for step, batch, before in reference.list_steps(tier):
            for number, values in enumerate(found):
                start = states[number] if tier == "free" else before
                states[number] = self._run(tier, number, step, start, batch, values)
        return tuple(
            reference.make_trace(
                f"twin {number}", values, permuted=self._permutes(number)
            )
            for number, values in enumerate(found)
        )

    def record_rounded(self, tier: Tier) -> tuple[Trace, ...]:
        """All steps, moved by a rounding of the narrower dtype in which they compute.

        Each step from the reference's state: how far losses, gradients, and what the
        step adds to the state move by what that dtype loses. None where it loses no
        more than the variables' own, or where replicas are held against parts of the
        global batch.
        """
        return self._try_orders(self._round_all, tier) if self._loses_more(tier) else ()

    def _round_all(self, tier: Tier) -> tuple[Trace, ...]:
        reference, session = self._reference, self._reference.session
        found = [session.make_values() for _ in range(_TWINS)]
        for step, batch, before in reference.list_steps(tier):
            for number, values in enumerate(found):
                start = self._round(number, step, before)
                session.restore_state(start)
                examples = batch
                if self._permutes(number):
                    order = self._seed(number, step).permutation(count_batch(batch))
                    examples = take_examples(batch, order)
                reference.run_whole(step, examples)
                session.collect_taps(step, values, replica=WHOLE, phases=_ROUNDED)
                after = put_back(session.read_state(), start, before)
                session.collect_state(step, after, values, replica=WHOLE)
        return tuple(
            reference.make_trace(
                f"rounded {number}", values, permuted=self._permutes(number)
            )
            for number, values in enumerate(found)
        )

    def move(self, tier: Tier, number: int, step: int, state: State) -> State:
        """A state moved by a rounding of its own dtypes.

        Args:
            tier: Of which the reference ran all steps.
            number: Which of several roundings.
            step: Before which step.
            state: What to move.
        """
        return self._perturb(tier, state, self._seed(number, step), None)

    def record_led(
        self,
        tier: Tier,
        feeder: Feeder,
        recorded: Trace,
        phase: Phase,
        paths: Collection[str],
    ) -> tuple[Trace, ...]:
        """Record twins into which the reference's own gradients are put at a phase.

        What still moves the state is what else of the batch leads it.

        Args:
            tier: Which one.
            feeder: Runs the reference's steps.
            recorded: What the reference recorded in the tier.
            phase: Where to put in gradients.
            paths: The state to keep.
        """
        if not self._loses_more(tier):
            return ()
        own = take_whole(recorded, phase)
        found: list[Trace] = []
        with suppress(SubjectError):
            for number in range(_TWINS):
                move = partial(self._round, number)
                fed = feeder.feed(tier, own, phase, move=move)
                state = Values(fed.values).keep(
                    lambda key: key.phase in STATE and key.variable in paths
                )
                state = state.rename(lambda key: key.at(WHOLE))
                found.append(replace(fed, values=state))
        return tuple(found)

    def _loses_more(self, tier: Tier) -> bool:
        """Whether a program's steps of a tier round a narrower dtype than its own."""
        reference = self._reference
        kept = [count_digits(d) for d in reference.list_dtypes() if "float" in d]
        loses_more = bool(kept) and count_digits(reference.narrowest) < min(kept)
        is_open = not reference.session.program.shards_known and reference.repeats
        return tier == "bounded" and loses_more and is_open

    def _seed(self, number: int, step: int) -> np.random.Generator:
        seed = self._reference.scenario.seed
        return np.random.default_rng((seed, number, step))

    def _round(self, number: int, step: int, before: State) -> State:
        """A state moved by a rounding of the dtype in which the step computes.

        What an optimizer keeps stays: it updates in the dtype of that.
        """
        rng, narrow = self._seed(number, step), self._reference.narrowest
        kept = {
            v.path for v in self._reference.session.variables if v.role != "variable"
        }
        return self._perturb("bounded", before, rng, narrow, kept)

    def _perturb(
        self,
        tier: Tier,
        state: State,
        rng: np.random.Generator,
        narrow: str | None,
        kept: Collection[str] = (),
    ) -> State:
        """A state moved by a rounding, but for what is kept and for what counts."""
        counts = self._list_counts(tier)
        return {
            key: array
            if key[0] in kept or key in counts
            else perturb(array, rng, narrow)
            for key, array in state.items()
        }

    def _list_counts(self, tier: Tier) -> set[tuple[str, int]]:
        """State that counts in floating point, which no rounding moves."""
        if tier not in self._counts:
            self._counts[tier] = find_counts(self._reference.starts.list_whole(tier))
        return self._counts[tier]

    def _run(
        self,
        tier: Tier,
        number: int,
        step: int,
        start: State,
        batch: Any,
        values: Recorded,
    ) -> State:
        """One step of a twin.

        Half of them have the examples in another order: a program to which that
        matters still has the others.
        """
        reference, session = self._reference, self._reference.session
        rng = self._seed(number, step)
        if number > 0:
            # A free run has no shard to be held against, so its twins must show all
            # the rounding that there is, that of a narrower dtype in the step too.
            narrow = reference.narrowest if tier == "free" else None
            start = self._perturb(tier, start, rng, narrow)
        order = np.arange(count_batch(batch))
        if self._permutes(number):
            order = rng.permutation(order)
        session.restore_state(start)
        reference.run_whole(step, take_examples(batch, order))
        state = session.read_state()
        session.collect_taps(step, values, replica=WHOLE)
        session.collect_state(step, state, values, replica=WHOLE)
        # Replicas store their parts of a metric rounded, and it may magnify that.
        own = {v.path for v in session.variables if not v.synchronised}
        stored = {
            key: perturb(array, rng, None) if key[0] in own else array
            for key, array in state.items()
        }
        session.restore_state(stored)
        session.collect_results(step, stored, values)
        return state
