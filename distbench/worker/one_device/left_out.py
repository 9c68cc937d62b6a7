"""Steps that a subject leaves out on one device because of a corrupt gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from distbench.fault import Fault
from distbench.trace.numbers import densify, is_finite
from distbench.worker.process.failures import SubjectError
from distbench.worker.state.values import have_same_bits
from distbench.worker.stepping.injected import FaultySteps

if TYPE_CHECKING:
    from distbench.worker.stepping.session import Session
    from distbench.worker.stepping.steps import Step
    from distbench.worker.taps.collect import State


class LeftOut:
    """Finds out whether the subject answers a fault by leaving the step out.

    A loss scale answers so, or a guard of the user's, which may hand zeros to a rule
    that goes on by its momentum: then the cluster has to leave it out too, and the
    reference is a run with the fault. Any other answer is compared with the training
    without the fault.

    Args:
        session: The subject on one device; its first step has been traced.
        faults: Those of the scenario.
        shard_function: What a shard runs; None is what the whole batch does.
    """

    def __init__(
        self,
        session: Session,
        faults: Sequence[Fault],
        shard_function: Callable[[Any], Any] | None = None,
    ) -> None:
        self._session = session
        # A gradient times 0 leaves what gradients of 0 leave, whoever takes it.
        self._scaled = {fault.step for fault in faults if fault.kind == "scale"}
        self._whole = FaultySteps(session, faults, as_whole=True)
        self._shards = {
            fault.rank: FaultySteps(
                session,
                [other for other in faults if other.rank == fault.rank],
                as_whole=True,
                function=shard_function,
            )
            for fault in faults
        }
        self._known: dict[int, bool] = {}

    def find_whole(self, step: int, batch: Any) -> Step | None:
        """What runs a step that is left out, on a global batch; None for any other.

        Asked for the first time it tries, from the state that there is.
        """
        faulty = self._whole.find(step)
        if faulty is None:
            return None
        if step not in self._known:
            self._known[step] = self._try(faulty, batch, step)
        return faulty if self._known[step] else None

    def find_shard(self, step: int, replica: int) -> Step | None:
        """What runs such a step on the shard of a replica; None for any other.

        It is known once `find_whole` was asked.
        """
        if not self._known.get(step) or replica not in self._shards:
            return None
        return self._shards[replica].find(step)

    def _try(self, faulty: Step, batch: Any, step: int) -> bool:
        before = self._session.read_state()
        after = self._run(faulty, batch, before)
        if after is None:
            return False
        if step in self._scaled:
            return self._is_kept(before, after)
        return self.is_left_out(step, batch, before, after)

    def is_left_out(self, step: int, batch: Any, before: State, after: State) -> bool:
        """Whether a step left the model as it was, or as gradients of 0 leave it.

        Counters, scales and statistics may go on: tf_keras counts a step that its loss
        scale skips, and a scale of the user's is another variable of its model.

        Args:
            step: Its number.
            batch: What it would train on.
            before: The state that it began from.
            after: What it left.
        """
        if self._is_kept(before, after):
            return True
        # What keeps a NaN has left nothing out, before its variable shows that.
        slots = {v.path for v in self._session.variables if v.of}
        keys = [key for key in before if key[0] in self._model | slots]
        if not all(is_finite(after[key]) for key in keys):
            return False
        nothing = [Fault.corrupt(0, step, factor=0.0)]
        zeroing = FaultySteps(self._session, nothing, as_whole=True).find(step)
        zeroed = None if zeroing is None else self._run(zeroing, batch, before)
        # A product with 0 may be -0.
        return zeroed is not None and all(
            np.array_equal(densify(zeroed[key]), densify(after[key])) for key in keys
        )

    def _is_kept(self, before: State, after: State) -> bool:
        """Whether the model has the same bits."""
        keys = [key for key in before if key[0] in self._model]
        return all(have_same_bits(before[key], after[key]) for key in keys)

    @property
    def _model(self) -> set[str]:
        """Paths of what is trained, or of all that the model has."""
        model = [v for v in self._session.variables if v.role == "variable"]
        return {v.path for v in model if v.trainable} or {v.path for v in model}

    def _run(self, by: Step, batch: Any, before: State) -> State | None:
        """What a step leaves; None where it raises, which is another answer."""
        session = self._session
        try:
            session.restore_state(before)
            session.run(by, [batch])
        except SubjectError:
            return None
        else:
            return session.read_state()
        finally:
            session.restore_state(before)
