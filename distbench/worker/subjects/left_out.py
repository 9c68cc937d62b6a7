"""Steps that a subject leaves out on one device because of a corrupt gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from distbench.fault import Fault
from distbench.worker.process.failures import SubjectError
from distbench.worker.state.values import are_equal
from distbench.worker.stepping.injected import FaultySteps

if TYPE_CHECKING:
    from distbench.worker.stepping.session import Session
    from distbench.worker.stepping.steps import Step


class LeftOut:
    """Finds out whether the subject answers a fault by leaving the step out.

    A loss scale answers so, or a guard of the user's: then the cluster has to leave it
    out too, and the reference is a run with the fault. Any other answer is compared
    with the training without the fault.

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
            self._known[step] = self._try(faulty, batch)
        return faulty if self._known[step] else None

    def find_shard(self, step: int, replica: int) -> Step | None:
        """What runs such a step on the shard of a replica; None for any other.

        It is known once `find_whole` was asked.
        """
        if not self._known.get(step) or replica not in self._shards:
            return None
        return self._shards[replica].find(step)

    def _try(self, faulty: Step, batch: Any) -> bool:
        session = self._session
        before = session.read_state()
        try:
            session.run(faulty, [batch])
        except SubjectError:
            return False  # it raises, which is another answer
        finally:
            after = session.read_state()
            session.board.read()  # what the taps keep is nobody's
            session.restore_state(before)
        # Counters, scales and statistics may go on: tf_keras counts a step that its
        # loss scale skips, and a scale of the user's is another variable of its model.
        model = [v for v in session.variables if v.role == "variable"]
        kept = {v.path for v in model if v.trainable} or {v.path for v in model}
        return all(
            are_equal(value, after[key])
            for key, value in before.items()
            if key[0] in kept
        )
