"""A step of the reference with its examples in other places, or others in theirs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from distbench.evidence import Tier
from distbench.trace import WHOLE, Phase, Trace, TraceKey, Value
from distbench.worker.one_device.made_up import make_up
from distbench.worker.one_device.reference import Reference
from distbench.worker.one_device.twins import Twins
from distbench.worker.process.failures import SubjectError
from distbench.worker.stepping.program import count_batch, take_examples
from distbench.worker.stepping.steps import Step

_PHASES: tuple[Phase, ...] = ("local_gradient",)

Order = npt.NDArray[np.intp]
"""Numbers of examples of the global batch, in the order of a batch: [n]."""
Gradients = Mapping[TraceKey, Value]


class Rearranged:
    """A step of the reference, asked what its gradients are made of.

    Args:
        reference: Ran all its steps before.
        tier: From whose states the step starts.
        recorded: What that gave.
        step: Its number.
        twins: Moves states by rounding.
        by: What runs the batch; None is its own trace.

    Attributes:
        batch: What the step takes.
        examples: All of its examples, in their order.
        orders: Those of the batch, under `WHOLE`, and of each replica's shard.
        due: Gradients of these, as they were recorded.
        dtype: The narrowest dtype that values go through.
    """

    def __init__(
        self,
        reference: Reference,
        tier: Tier,
        recorded: Trace,
        step: int,
        twins: Twins,
        by: Step | None = None,
    ) -> None:
        self._reference = reference
        self._recorded = recorded
        self._twins = twins
        self._by = by
        self.tier: Tier = tier
        self.step = step
        self.dtype = reference.narrowest
        self.batch = reference.draw(step)
        self.examples: Order = np.arange(count_batch(self.batch))
        parts = reference.sizes.cut(step, self.examples)
        self.orders: dict[int, Order] = {WHOLE: self.examples, **dict(enumerate(parts))}
        self.due: dict[int, Gradients] = {
            replica: dict(
                recorded.select(step=step, phase="local_gradient", replica=replica)
            )
            for replica in self.orders
        }

    def get_due(self, variable: str) -> Gradients:
        """Gradients of the batch for one variable."""
        found = self.due[WHOLE].items()
        return {key: value for key, value in found if key.variable == variable}

    def is_made_up(self, due: Gradients) -> bool:
        """Whether the shards' gradients make up these of the batch."""
        sizes = [len(order) for r, order in self.orders.items() if r != WHOLE]
        find_margin = partial(self._twins.find_margin, self.tier)
        return make_up(self._recorded, due, sizes, self.dtype, find_margin)

    def run(self, replica: int, order: Order, move: int = 0) -> Gradients:
        """Gradients of other examples; empty where the subject refuses them.

        Args:
            replica: Whose state the step starts from.
            order: The examples.
            move: By which rounding to move that state; 0 leaves it.
        """
        reference, step = self._reference, self.step
        batch: Any = take_examples(self.batch, order)
        values = reference.session.make_values()
        if replica == WHOLE:
            reference.starts.restore_whole(self.tier, step)
        else:
            reference.starts.restore_shard(self.tier, step, replica)
        if move:
            start = reference.session.read_state()
            moved = self._twins.move(self.tier, move, step, start)
            reference.session.restore_state(moved)
        if replica == WHOLE:
            try:
                reference.run_whole(step, batch, self._by)
            except SubjectError:
                return {}  # examples may belong together, as those of one text
        elif not reference.runs_shard(step, batch):
            return {}
        reference.session.collect_taps(step, values, replica=replica, phases=_PHASES)
        return dict(values.items())
