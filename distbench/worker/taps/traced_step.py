"""Where in a traced step the calling code is: of which replica, in which update."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import distribute_lib

from distbench.trace import Phase
from distbench.worker.process.loops import Loops
from distbench.worker.taps.draws import list_drawn
from distbench.worker.taps.exchange import is_made_of
from distbench.worker.taps.reached import Reached
from distbench.worker.taps.seen import Seen


class TracedStep:
    """How far a task's replicas are in the step that is traced, or runs op by op.

    Args:
        first_replica: Global number of this task's first replica.

    Attributes:
        seen: What the replicas have shown in it.
        loops: Those of AutoGraph in it.
        failed_replica: The first replica for which the subject's code raised.
        failed_phase: The last phase that it had reached; `loss` if it had none.
        failed_by: The exception that left its code. Where replicas meet in a thread of
            none of them, as a reduction does, TensorFlow raises there and stops the
            replicas by an exception of its own: this one knows where they were.
    """

    def __init__(self, first_replica: int = 0) -> None:
        self._first_replica = first_replica
        self._calls: dict[int, int] = {}
        self._depth: dict[int, int] = {}
        self._is_between = False
        self._local = threading.local()
        self._reached = Reached()
        self.seen = Seen()
        self.loops = Loops()
        self.failed_replica: int | None = None
        self.failed_phase: Phase | None = None
        self.failed_by: Exception | None = None

    def find_replica(self) -> int:
        """Global number of the replica that the calling code runs for."""
        context = tf.distribute.get_replica_context()
        if context is not None:
            # The public property makes an op, in the user's graph, whenever it is
            # asked; what it makes it of is a number, but for what TPUs run.
            known = context._replica_id_in_sync_group
            known = tf.get_static_value(known) if tf.is_tensor(known) else known
            return int(known or 0)
        # In an update: the number within this task under the mirrored strategies; a
        # device's name under CentralStorage and parameter servers, which update one
        # copy.
        number = distribute_lib.get_update_replica_id()
        return (number if isinstance(number, int) else 0) + self._first_replica

    def count_calls(self, replica: int) -> int:
        """How many updates a replica has made in this trace: calls of optimizers."""
        return self._calls.get(replica, 0)

    @property
    def is_in_call(self) -> bool:
        """Whether an optimizer of this replica is at its update."""
        return self._depth.get(self.find_replica(), 0) > 0

    # --- coming and going ---------------------------------------------------------

    @contextmanager
    def leave_step(self) -> Iterator[None]:
        """Around what happens between two steps: none of it is the step's own."""
        self._is_between = True
        try:
            yield
        finally:
            self._is_between = False

    def begin_replica(self, batch: Any) -> None:
        """Begin one replica's step: a new trace counts its calls from 0.

        Args:
            batch: What the step is given.
        """
        replica = self.find_replica()
        self._reached.begin(replica)
        self._forget_trace(replica)
        tensors = [t for t in tf.nest.flatten(batch) if tf.is_tensor(t)]
        self.seen.given[replica] = tensors

    def _forget_trace(self, replica: int) -> None:
        """Drop what was seen while another graph was traced."""
        self._calls[replica] = self._depth[replica] = 0
        self.seen.forget(replica)

    @contextmanager
    def enter_call(self) -> Iterator[bool]:
        """Around `apply_gradients`: yields whether this is the outermost one.

        An optimizer that wraps another calls it from inside its own; what the user
        handed over is the argument of the outer one.
        """
        if self._is_between:
            yield False
            return
        replica = self.find_replica()
        depth = self._depth.get(replica, 0)
        self._depth[replica] = depth + 1
        try:
            yield depth == 0
        finally:
            self._depth[replica] = depth
            if depth == 0:
                self._calls[replica] = self.count_calls(replica) + 1

    @contextmanager
    def enter_once(self, phase: Phase) -> Iterator[bool]:
        """Yields False inside another call for the same phase in this thread."""
        name = f"in_{phase}"
        outermost = not getattr(self._local, name, False)
        setattr(self._local, name, True)
        try:
            yield outermost
        except Exception as error:
            self.note_failure(error)
            raise
        finally:
            if outermost:
                setattr(self._local, name, False)

    # --- failing --------------------------------------------------------------------

    def note_failure(self, error: Exception) -> None:
        """Remember for which replica code raised first: its peers raise after it."""
        replica = self.find_replica()
        if self.failed_replica is None:
            self.failed_replica = replica
            self.failed_phase = self._reached.find_last(replica)
        if replica == self.failed_replica:
            # Further out AutoGraph has another one, which lists the user's own lines.
            self.failed_by = error

    def locate_failure(self, error: BaseException, devices: Sequence[str]) -> None:
        """Find by what a run raised where in the step the op was made that failed.

        Args:
            error: What it raised.
            devices: That of each of the task's replicas; empty where it has one.
        """
        if self.failed_by is None and isinstance(error, tf.errors.OpError):
            self.failed_replica, self.failed_phase = self._reached.locate(
                str(error), devices, self._first_replica
            )

    def forget_failure(self) -> None:
        """Look for the next one."""
        self.failed_replica = self.failed_phase = self.failed_by = None

    # --- what tapes do --------------------------------------------------------------

    def remember_target(self, target: Any, *, trains: bool) -> None:
        """Keep what a tape of this replica differentiated; see `Seen.add_target`."""
        if not self._is_between:
            self.seen.add_target(self.find_replica(), target, trains=trains)

    def remember_result(self, result: Any, sources: Any, *, trains: bool) -> None:
        """Keep what a tape of this replica gave; see `Seen.add_result`.

        Not how a loss changes with its examples, or with what was drawn: that is a
        feature as any other, and no gradient that trains.

        Args:
            result: What it gave.
            sources: By what it differentiated.
            trains: Whether a variable of the subject is among these.
        """
        if self._is_between:
            return
        replica = self.find_replica()
        if trains or not self._is_of_examples(replica, sources):
            self.seen.add_result(replica, result)

    def _is_of_examples(self, replica: int, sources: Any) -> bool:
        found = [s for s in tf.nest.flatten(sources) if hasattr(s, "graph")]
        if not found:
            return False
        given = [*self.seen.given.get(replica, ()), *list_drawn(found[0].graph)]
        return is_made_of(found, given, ends=self.seen.list_results())

    def list_targets(self) -> list[Any]:
        """What the tapes of this replica's step differentiated."""
        return self.seen.list_targets(self.find_replica())

    def remember_gradient(self, variable: str, gradient: Any) -> None:
        """Keep a gradient that a tape gave, until its optimizer is called."""
        if gradient is not None and not self._is_between:
            replica = self.find_replica()
            call = self.count_calls(replica)
            self._reached.pass_by(replica, "local_gradient")
            passes = self.loops.count_passes()
            self.seen.gradients.remember(replica, variable, gradient, call, passes)

    def recall_gradient(self, variable: str) -> Any:
        """The gradient that a tape of this replica gave; see `OwnGradients.recall`."""
        return self.seen.gradients.recall(self.find_replica(), variable)
