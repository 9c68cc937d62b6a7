"""What a step of the global batch hands on, for shards that go on from it."""

from __future__ import annotations

from collections.abc import Mapping

from distbench.trace import WHOLE, Phase, TraceKey, Value
from distbench.worker.taps.feeds import ByPlace

_PHASE: Phase = "reduced_gradient"


class Handed:
    """The reduced gradients of steps after whose updates a replica goes on.

    It goes on from updates that all replicas made. So what is due of its later
    gradients, where a step updates several times, is what its shard gives after those
    of the global batch. So is what is due of state that it makes for itself of what
    trains, as of a copy that follows: by the update of its own shard alone, that would
    be another one on each, and the next step would seem to depend on who gets which
    example.
    """

    def __init__(self) -> None:
        self._steps: list[ByPlace] = []
        self._is_often = False
        self.leads_own = False
        """Whether shards of any step leave state that a replica has for itself."""

    def keep(self, values: Mapping[TraceKey, Value], step: int) -> None:
        """Keep those of a step, and forget those of later ones."""
        found = {
            (key.call, key.phase, key.variable): value
            for key, value in values.items()
            if key.step == step and key.phase == _PHASE and key.replica == WHOLE
        }
        is_often = any(call > 0 for call, _, _ in found)
        self._is_often = self._is_often or is_often
        self._steps[step:] = [found if is_often or self.leads_own else {}]

    def __getitem__(self, step: int) -> ByPlace:
        return self._steps[step]

    @property
    def is_often(self) -> bool:
        """Whether a step updates several times, as that of a GAN does."""
        return self._is_often
