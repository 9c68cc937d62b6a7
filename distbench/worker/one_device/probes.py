"""Further single-device runs: does the grouping of a program's examples matter?"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from distbench.evidence import Tier
from distbench.trace import COMPUTED, WHOLE, Trace, TraceKey, Value
from distbench.worker.one_device.exchanged import give_exchanged, scale_exchanged
from distbench.worker.one_device.joint import start_jointly
from distbench.worker.one_device.met import let_meet
from distbench.worker.one_device.reference import Reference
from distbench.worker.one_device.repeating import repeat_rows
from distbench.worker.one_device.twins import Twins
from distbench.worker.state.handles import Handles
from distbench.worker.state.values import are_near, have_same_bits
from distbench.worker.stepping.program import count_batch, take_examples
from distbench.worker.taps.draws import find_seeding

Rows: TypeAlias = npt.NDArray[np.int64]
"""Numbers of examples in a batch."""

_DRAWS = 48
"""Runs of a step with other random numbers each time, to see what they average to."""
_STRIDE = 3
"""Steps between two draws: a double shard may use up the random numbers of two."""


class Probes:
    """Asks one device how a program's result depends on its batch.

    Args:
        reference: Ran all its steps before.
        recorded: What that gave.
        twins: Tell rounding of the same tier.
    """

    def __init__(self, reference: Reference, recorded: Trace, twins: Twins) -> None:
        self._reference = reference
        self._recorded = recorded
        self._twins = twins
        self._session = reference.session

    def record(self, tier: Tier) -> Mapping[str, Trace]:
        """Loss and local gradients of other batches than the replicas get.

        Args:
            tier: From whose states the steps start.

        Returns:
            `regrouped`: shards of the same sizes that hold other examples of the batch,
            in the first step, and where replicas have state for themselves also in the
            second. Where shards are uneven, `swapped-first`, `swapped-last` and
            `swapped-both` are the largest of the first step with some examples, some
            others, and both of them in the place of its own. `doubled`: every shard
            with each of its examples twice, in every step, and what state that no
            gradient trains then holds. `tripled`: the shard that is the largest in the
            first step with each three times, and those that do not double or stay as
            that one does. Where whole numbers among the variables lead the step, as the
            state of a random generator does, `once` and `twice` are that shard of the
            first step and its double with others of these numbers; each run counts as a
            step. Where a loss is made of what a collective gives, `exchanged` are the
            shards of each step, `exchanged-regrouped` and `exchanged-doubled` those of
            the first one with other examples and with each twice, given what the global
            batch has of the collectives. What else, `scale_exchanged`, `let_meet` and
            `start_jointly` say. Empty for a workload of the bench, whose loss is a sum
            over examples.
        """
        reference = self._reference
        if self._session.program.shards_known:
            return {}
        batch = reference.draw(0)
        steps = range(reference.scenario.steps)
        # In the first step what replicas have for themselves is the same for all.
        first = steps[: 2 if reference.keeps_own else 1]
        largest = int(np.argmax(reference.shards))
        shards = self._cut(0, batch)
        shard = shards[largest]
        given = {
            "exchanged": [self._cut(step, reference.draw(step)) for step in steps],
            "exchanged-regrouped": [self._regroup(0)],
            "exchanged-doubled": [
                {r: repeat_examples(own, 2) for r, own in shards.items()}
            ],
        }
        doubled = self._probe("doubled", self._list_repeated(2), tier, keeps_led=True)
        plain = [n for n in (1.0, 2.0) if self._grows(doubled, 0, largest, n, tier)]
        odd = self._find_odd(doubled, plain, tier)
        thrice = self._list_repeated(3, {*odd, *((s, largest) for s in steps)})
        return {
            "regrouped": self._probe("regrouped", map(self._regroup, first), tier),
            "doubled": doubled,
            "tripled": self._probe("tripled", thrice, tier),
            **({} if plain else self._ask_further(largest, tier)),
            **self._draw_again(
                largest, {"once": shard, "twice": repeat_examples(shard, 2)}, doubled
            ),
            **give_exchanged(reference, tier, given),
            **scale_exchanged(reference, tier),
            **let_meet(reference, tier),
            **self._start_jointly(tier),
        }

    def _start_jointly(self, tier: Tier) -> Mapping[str, Trace]:
        reference = self._reference
        if not reference.keeps_own or reference.scenario.steps == 1:
            return {}
        batches = {
            "joint": [self._cut(s, b) for s, b, _ in reference.list_steps(tier)],
            "joint-regrouped": [{}, self._regroup(1)],
            "joint-doubled": [*self._list_repeated(2)],
        }
        return start_jointly(reference, tier, self._recorded, batches)

    def _cut(self, step: int, batch: Any) -> dict[int, Any]:
        return dict(enumerate(self._reference.sizes.cut(step, batch)))

    def _regroup(self, step: int) -> dict[int, Any]:
        batch = self._reference.draw(step)
        # Each shard in the order of the batch: a program may rely on ids that rise.
        parts = self._cut(step, self._shuffle(np.arange(count_batch(batch))))
        return {r: take_examples(batch, np.sort(part)) for r, part in parts.items()}

    def _shuffle(self, rows: Rows) -> Rows:
        seed = (self._reference.scenario.seed, len(rows))
        return np.random.default_rng(seed).permutation(rows)

    def _list_repeated(
        self, times: int, wanted: Collection[tuple[int, int]] | None = None
    ) -> Iterator[dict[int, Any]]:
        """Each step's shards with every example so often.

        Args:
            times: How often.
            wanted: Steps and replicas whose shards to take; None is all.
        """
        for step in range(self._reference.scenario.steps):
            shards = self._cut(step, self._reference.draw(step))
            yield {
                replica: repeat_examples(shard, times)
                for replica, shard in shards.items()
                if wanted is None or (step, replica) in wanted
            }

    def _ask_further(self, largest: int, tier: Tier) -> Mapping[str, Trace]:
        """What proves terms of two kinds in a shard that is no sum and no mean.

        Or that it is led by the number of its examples alone.
        """
        shards = self._list_repeated(4, {(0, largest)})
        return {
            "quadrupled": self._probe("quadrupled", shards, tier),
            **self._swap(largest, tier),
        }

    def _swap(self, largest: int, tier: Tier) -> Mapping[str, Trace]:
        """The largest shard with some of its examples changed for others'.

        Of uneven shards a deal changes also how many examples come with each one. This
        changes only which: examples that count each by itself make the same difference
        whatever others are there.
        """
        batch = self._reference.draw(0)
        own = self._cut(0, np.arange(count_batch(batch)))[largest]
        rest = np.setdiff1d(np.arange(count_batch(batch)), own)
        if len(set(self._reference.shards)) == 1 or len(own) < 2 or not len(rest):
            return {}
        # A few others may come twice: the more changes, the more there is to see.
        size = min(len(own) // 2, len(rest))
        mine, others = self._shuffle(own), self._shuffle(rest)
        first = (mine[:size], others[:size])
        last = (mine[-size:], others[-size:])
        shards = {
            "swapped-first": _swap_rows(own, first),
            "swapped-last": _swap_rows(own, last),
            "swapped-both": _swap_rows(own, first, last),
        }
        return {
            name: self._probe(name, [{largest: take_examples(batch, rows)}], tier)
            for name, rows in shards.items()
        }

    def _find_odd(
        self, doubled: Trace, plain: Collection[float], tier: Tier
    ) -> set[tuple[int, int]]:
        """Steps and replicas whose shards do not grow as the largest of the first does.

        Empty where that is neither a sum nor a mean: it tells by itself what it is.

        Args:
            doubled: Every shard with each of its examples twice.
            plain: How many times as much the largest has so, where that is 1 or 2.
            tier: See `record`.
        """
        found = {
            (key.step, key.replica) for key, _ in doubled.select(phase="local_gradient")
        }
        return {
            place
            for place in (found if plain else ())
            if not any(self._grows(doubled, *place, times, tier) for times in plain)
        }

    def _grows(
        self, doubled: Trace, step: int, replica: int, times: float, tier: Tier
    ) -> bool:
        """Whether the double of a shard has so many times as much of each gradient."""

        def is_multiple(key: TraceKey, twice: Value) -> bool:
            def find_noise() -> float:
                whole = self._recorded.get(key.at(WHOLE))
                margin = self._twins.find_margin
                return 0.0 if whole is None else margin(tier, key, whole)

            value = self._recorded.get(key)
            return value is not None and are_near(
                value, twice, None, part=times, find_noise=find_noise
            )

        found = doubled.select(step=step, phase="local_gradient", replica=replica)
        return all(is_multiple(key, twice) for key, twice in found)

    def _probe(
        self,
        name: str,
        steps: Iterable[Mapping[int, Any]],
        tier: Tier,
        *,
        keeps_led: bool = False,
    ) -> Trace:
        values = self._session.make_values()
        for step, shards in enumerate(steps):
            for replica, shard in shards.items():
                is_seen = self._reference.observes_shard(
                    tier, step, replica, shard, values
                )
                if is_seen and keeps_led:
                    led = self._reference.read_led(values)
                    self._session.collect_state(step, led, values, replica=replica)
        return self._reference.make_trace(name, values)

    def _draw_again(
        self, replica: int, batches: Mapping[str, Any], doubled: Trace
    ) -> Mapping[str, Trace]:
        """The first step on each batch, as if it came some steps later.

        What a step adds to a whole number is added several times: random numbers drawn
        by its state are others then. Empty where that changes nothing, and where a step
        is given numbers that say by its double already what is taken of a shard.
        """
        reference = self._reference
        values = {name: self._session.make_values() for name in batches}
        given = self._session.draws.are_given
        if given and self._is_plain(doubled, replica):
            return {}
        moves = self._find_moves(next(iter(batches.values())))
        for draw in range(_DRAWS if moves or given else 0):
            later = {
                key: np.asarray(reference.initial[key] + _STRIDE * (draw + 1) * move)
                for key, move in moves.items()
            }
            for name, batch in batches.items():
                self._session.restore_state({**reference.initial, **later})
                with self._session.draws.shift(_STRIDE * (draw + 1)):
                    if not reference.runs_shard(0, batch):
                        return {}
                self._session.collect_taps(
                    draw, values[name], replica=replica, phases=COMPUTED
                )
            if draw == 1 and not any(map(_changes, values.values())):
                return {}
        return {
            name: reference.make_trace(name, found)
            for name, found in values.items()
            if found
        }

    def _is_plain(self, doubled: Trace, replica: int) -> bool:
        """Whether each gradient of a shard stays or doubles with its examples.

        A loss beside in-batch negatives does neither, where its gradients stay.
        """
        return all(
            value is not None
            and any(are_near(value, twice, None, part=part) for part in (1.0, 2.0))
            for key, twice in doubled.select(
                step=0, phase="local_gradient", replica=replica
            )
            for value in [self._recorded.get(key)]
        )

    def _find_moves(self, batch: Any) -> dict[tuple[str, int], Any]:
        """What a step adds to whole numbers among the variables.

        Not to a count of steps, by which a loss may be annealed, unless draws have
        their seeds from it.
        """
        self._session.restore_state(self._reference.initial)
        if not self._reference.runs_shard(0, batch):
            return {}
        after = self._session.read_state()
        handles = Handles(self._session.table)
        seeding = handles.name(find_seeding(self._reference.graph))
        whole = {
            v.path
            for v in self._session.variables
            if v.role != "iterations" or v.path in seeding
        }
        numbers: dict[tuple[str, int], Any] = {
            key: start
            for key, start in self._reference.initial.items()
            if key[0] in whole and start.dtype.kind in "iu"
        }
        moves = {key: after[key] - start for key, start in numbers.items()}
        return {key: move for key, move in moves.items() if np.any(move)}


def repeat_examples(shard: Any, times: int) -> Any:
    """A shard with every example so many times."""
    return tf.nest.map_structure(lambda rows: repeat_rows(rows, times), shard)


def _swap_rows(own: Rows, *swaps: tuple[Rows, Rows]) -> Rows:
    """The numbers of a shard's examples, with some that go and others that come."""
    for gone, come in swaps:
        own = np.concatenate([np.setdiff1d(own, gone), come])
    return np.sort(own)


def _changes(values: Mapping[TraceKey, Value]) -> bool:
    """Whether the second run gave something else than the first."""
    return any(
        not have_same_bits(values.get(replace(key, step=0)), value)
        for key, value in values.items()
        if key.step == 1
    )
