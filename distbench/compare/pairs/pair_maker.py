"""Makes pairs of an observed value and an expected one, once for all equal copies."""

from __future__ import annotations

from dataclasses import replace

from distbench.compare.arrays.aligned import align_pair
from distbench.compare.arrays.copies import are_copies
from distbench.compare.arrays.measure import Margin
from distbench.compare.arrays.noise import Noise
from distbench.compare.arrays.pair import Pair, Relation
from distbench.evidence import Evidence
from distbench.trace import INITIAL, STATE, TraceKey, Value
from distbench.trace.numbers import Array, densify, name_value


class PairMaker:
    """Makes pairs, and knows the last one of each relation until told to forget."""

    def __init__(self, evidence: Evidence, noise: Noise) -> None:
        self._evidence = evidence
        self._noise = noise
        self._known: dict[tuple[Relation, str], tuple[Value, Value, Pair]] = {}

    def forget(self) -> None:
        """Let go of all pairs: those of a large model would fill the memory."""
        self._known.clear()

    def make(
        self,
        key: TraceKey,
        relation: Relation,
        against: str,
        value: Value,
        expected: Value,
        margin: Margin | None = None,
        *,
        repeats: bool = False,
    ) -> Pair:
        """An observed value beside an expected one.

        Args:
            key: Where it was observed.
            relation: The relation in which the two stand.
            against: Name of what it is compared with.
            value: The observed value.
            expected: The expected one.
            margin: How far apart they may lie; None takes the noise of one device.
            repeats: Whether both come from the same ops on the same numbers.
        """
        known = self._known.get((relation, against))
        if known is not None and are_copies((value, expected), (known[0], known[1])):
            # What is true of one copy is true of all.
            return replace(known[2], key=key)
        seen, wanted, gap = align_pair(value, expected)
        if margin is None and repeats:
            margin = self._noise.find_repeated_margin(key, wanted.total)
        elif margin is None:
            margin = self._noise.find_margin(key, wanted.total)
        pair = Pair(
            key=key,
            relation=relation,
            against=against,
            observed=seen.total,
            expected=wanted.total,
            margin=margin,
            dtype=name_value(value),
            base=self._find_base(key, seen.total.shape),
            rows=seen.places,
            repeats=repeats,
            gap=gap,
        )
        self._known[relation, against] = value, expected, pair
        return pair

    def _find_base(self, key: TraceKey, shape: tuple[int, ...]) -> Array | float:
        """The state before the step; 0 for what is no state, or of another shape."""
        if key.phase not in STATE or key.step == INITIAL:
            return 0.0
        before = self._evidence.get_before(key.step, key.phase, key.variable)
        state = None if before is None else densify(before)
        return 0.0 if state is None or state.shape != shape else state
