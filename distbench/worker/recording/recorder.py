"""Records a job of the user's own: the taps of the bench, and none of its processes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import tensorflow as tf

from distbench.errors import BadInputError
from distbench.trace import (
    DIGESTS,
    WHOLE,
    Recorded,
    Trace,
    TraceKey,
    Value,
)
from distbench.trace.files import write_trace
from distbench.trace.folder import find_parts, name_part
from distbench.worker.families import (
    find_family,
    find_optimizers,
    install_taps,
)
from distbench.worker.process.environment import describe_environment
from distbench.worker.process.intercept import Undo
from distbench.worker.recording.board import RecordingBoard
from distbench.worker.recording.calls import OutermostCalls
from distbench.worker.recording.folders import make_folders, remove_empty
from distbench.worker.recording.kept import Kept
from distbench.worker.recording.place import (
    check_copies,
    check_strategy,
    find_place,
    is_scheduled,
)
from distbench.worker.state.components import (
    list_components,
    list_variables,
    read_component,
)
from distbench.worker.state.reachable import walk_variables
from distbench.worker.state.values import have_same_bits
from distbench.worker.taps.learned import LearnedTable
from distbench.worker.taps.tapes import watch_tapes

_NOT_SEEN = (
    "distbench.record can see only what is traced inside the 'with': put the 'with' "
    "before the first call of the train function (of fit, for a Keras model), or make "
    "the function anew inside it."
)
_SCHEDULED = (
    "Under a ParameterServerStrategy nobody but you knows when a step has ended: put "
    "'with recorder.step():' around coordinator.schedule(...) and coordinator.join()."
)
_LESS = (
    " What was written before can be read. Make room there, or record less: steps=10, "
    "every=100, digests=True."
)
_GONE = " The folder was moved or removed."


class Recorder:
    """What `distbench.record` gives: see there.

    Attributes:
        folder: Where the trace is.
        recorded: Numbers of the steps that are in it so far. No more come once the
            folder cannot be written: that is a warning, and the job goes on.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy | None,
        optimizer: Any,
        folder: Path,
        *,
        steps: int | None,
        every: int,
        variables: Sequence[Any],
        digests: bool,
    ) -> None:
        self.folder = folder
        self.recorded: list[int] = []
        self._strategy = check_strategy(strategy)
        given = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
        for one in given:
            find_family(one)
        self._optimizers = find_optimizers(given)
        wanted = (
            "distbench.record: variables must be a list of variables, such as "
            "model.variables."
        )
        listed = list_variables(variables, wanted)
        state = chain(listed, *map(walk_variables, self._optimizers))
        check_copies(self._strategy, state)
        self._limit, self._every = steps, every
        self._task, self._first_replica = find_place(self._strategy)
        self._board = RecordingBoard(
            self._strategy,
            first_replica=self._first_replica,
            device="/job:chief/device:CPU:0"
            if is_scheduled(self._strategy)
            else "/device:CPU:0",
        )
        self._digests = digests
        self._board.after_call = self._end_bare_call
        self._board.after_failure = self._drop_bare_call
        self._table = LearnedTable(listed)
        self._board.find_shape = self._table.find_shape
        self._kept = Kept(
            self._board,
            self._table,
            self._optimizers,
            first_replica=self._first_replica,
            digests=digests,
        )
        self._board.before_update = self._kept.read_initial
        self._calls = OutermostCalls(self._begin, self._end, self._drop)
        self._undo: list[Undo] = []
        self._made: list[Path] = []
        self._counters: list[Any] = []
        self._number = 0
        self._is_explicit = False
        self._last: int | None = None
        self._has_stopped = False
        self._told: dict[TraceKey, Value] = {}

    # --- around the user's loop ----------------------------------------------------

    def __enter__(self) -> Recorder:
        self._made.clear()
        if find_parts(self.folder, self._task):
            raise BadInputError(
                f"'{self.folder}' holds a trace of {self._task} already. Expected: a "
                "folder of its own for each run. Name another one, or remove it."
            )
        self._counters = _find_counters(self._optimizers)
        try:
            self._made += make_folders(self.folder)
            self._undo.append(watch_tapes(self._board, self._table))
            for optimizer in self._optimizers:
                self._undo += install_taps(optimizer, self._board, self._table)
            if not is_scheduled(self._strategy):
                self._undo += self._calls.watch(self._strategy)
        except BaseException:
            # Nobody leaves what was not entered.
            self._put_back()
            remove_empty(self._made)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._put_back()
        remove_empty(self._made)
        if kind is None and self._number == 0:
            raise BadInputError(
                "No step was recorded: none of the optimizers that were given to "
                f"distbench.record was called. {self._advise()}"
            )

    def _advise(self) -> str:
        return _SCHEDULED if is_scheduled(self._strategy) else _NOT_SEEN

    def _put_back(self) -> None:
        while self._undo:
            self._undo.pop()()

    # --- what a user may say ---------------------------------------------------------

    @contextmanager
    def step(self) -> Iterator[None]:
        """Around one step, where no single call of a function is one."""
        if not self._undo:
            yield
            return
        if self._is_explicit:
            raise BadInputError(
                "recorder.step() was entered inside itself. Expected: one around each "
                "step of the loop."
            )
        before = self._read_counters()
        self._is_explicit, self._told = True, {}
        try:
            yield
        except BaseException:
            self._forget_step()
            raise
        finally:
            self._is_explicit = False
        self._close_step(before, is_step=True)

    def loss(self, value: Any, name: str = "loss") -> None:
        """Keep what the loop reports of the step that ended last, or is going on.

        Args:
            value: A number, or what `strategy.run` returned: one of each replica.
            name: What to call it.

        Raises:
            BadInputError: There has been no step, the name is empty, or the value is
                no number.
        """
        if not name or not (self._is_explicit or self._number):
            raise BadInputError(
                "recorder.loss() needs a name, and a step that it belongs to. "
                "Expected: a call after a step, or inside of recorder.step(). If there "
                f"was a step, it was not seen. {self._advise()}"
            )
        if isinstance(value, tf.distribute.DistributedValues):
            parts = self._strategy.experimental_local_results(value)
            found = {self._first_replica + n: part for n, part in enumerate(parts)}
        else:
            # Of a worker's only replica `strategy.run` returns the number itself.
            is_part = (
                self._strategy.num_replicas_in_sync > 1
                and len(self._strategy.extended.worker_devices) == 1
            )
            found = {self._first_replica if is_part else WHOLE: value}
        step = self._number if self._is_explicit else self._last
        if step is None or self._has_stopped:
            return
        for replica, part in found.items():
            key = TraceKey(step=step, phase="loss", variable=name, replica=replica)
            if not self._undo and key in self._told:
                return  # of a later step, when all that was asked for is recorded
            self._told[key] = _read_number(part)
        if not self._is_explicit:
            self._write("told", step, self._told)

    # --- where steps end -----------------------------------------------------------

    def _begin(self) -> list[Any] | None:
        return None if self._is_explicit else self._read_counters()

    def _end(self, before: list[Any] | None) -> None:
        if before is not None and self._undo:
            self._close_step(before, is_step=False)

    def _end_bare_call(self) -> None:
        """A call of an optimizer outside of any function is a step by itself."""
        if self._undo and not self._is_explicit and self._calls.is_outside:
            self._close_step(None, is_step=False)

    def _drop(self, before: list[Any] | None) -> None:
        if before is not None and self._undo:
            self._forget_step()

    def _drop_bare_call(self) -> None:
        if self._undo and not self._is_explicit and self._calls.is_outside:
            self._forget_step()

    def _forget_step(self) -> None:
        """Leave nothing of a step that raised: the user's loop may go on after it."""
        self._board.count_updates()
        self._board.end_step()
        self._board.empty()

    def _close_step(self, before: list[Any] | None, *, is_step: bool) -> None:
        updates = self._board.count_updates()
        self._board.end_step()
        if not updates:
            self._refuse_unseen(before)
            if not is_step:
                return
        if updates > 1:
            raise BadInputError(
                f"Step {self._number} updated the same variables {updates} times: in "
                "a loop inside a function, or by several calls inside one "
                "recorder.step(). Expected: once, since only the last can be seen. "
                "Call the train function once for each step (steps_per_execution=1 "
                "for a Keras model)."
            )
        if self._number == 0:  # an optimizer may have had no state before
            check_copies(self._strategy, (v.container for v in self._table.state))
        number = self._number
        self._number += 1
        if not is_step:
            self._told = {}
        if number % self._every == 0:
            self._record(number)
        else:
            self._last, self._told = None, {}
            if self._number % self._every == 0:
                # A step that a loss scale skips writes no taps: nothing older may be
                # taken for what it did.
                self._board.empty()

    def _refuse_unseen(self, before: list[Any] | None) -> None:
        if before is None:
            return
        if all(map(have_same_bits, before, self._read_counters())):
            return
        raise BadInputError(
            f"A step was made that was not seen: after {self._number} that were, the "
            "optimizer counted on, and no value came out of its train function. "
            f"{_NOT_SEEN}"
        )

    def _read_counters(self) -> list[Any]:
        return [read_component(counter) for counter in self._counters]

    # --- what is written --------------------------------------------------------------

    def _record(self, number: int) -> None:
        values = self._kept.read_step(number)
        self._write("step", number, {**values, **self._told})
        if self._has_stopped:
            return
        self.recorded.append(number)
        self._last = number
        if self._limit is not None and len(self.recorded) >= self._limit:
            self._put_back()

    def _write(self, kind: str, step: int, values: Recorded) -> None:
        trace = Trace(
            name=self._task,
            replicas=self._strategy.num_replicas_in_sync,
            shards=(),
            variables=tuple(v.info for v in self._table.state),
            values=values,
            notes={
                "strategy": type(self._strategy).__name__,
                "optimizers": [type(o).__name__ for o in self._optimizers],
                "environment": dict(describe_environment()),
                **({DIGESTS: True} if self._digests else {}),
            },
        )
        try:
            write_trace(trace, self.folder, name_part(self._task, step, kind))
        except OSError as error:
            # A long job is worth more than its trace: it goes on without.
            self._has_stopped = True
            self._put_back()
            is_gone = isinstance(error, FileNotFoundError)
            warnings.warn(
                f"distbench.record could not write step {step} to '{self.folder}': "
                f"{error}. Nothing more is recorded, and the job goes on."
                f"{_GONE if is_gone else _LESS}",
                RuntimeWarning,
                stacklevel=2,
            )


def _find_counters(optimizers: Sequence[Any]) -> list[Any]:
    """Plain variables that change in each step, if the optimizers have any.

    Integers count steps. Where there are none, any single number does: powers of a
    rate, say. `iterations` is not asked for, since that would make it.
    """
    found = {
        id(component): component
        for optimizer in optimizers
        for variable in walk_variables(optimizer)
        for component in list_components(variable)[:1]
        if component.shape.num_elements() == 1 and bool(component.is_initialized())
    }
    integers = [v for v in found.values() if v.dtype.base_dtype.is_integer]
    return integers or list(found.values())


def _read_number(value: Any) -> np.ndarray:
    try:
        found = np.array(tf.convert_to_tensor(value).numpy())
    except (AttributeError, TypeError, ValueError):
        found = np.array(None)
    # Of NumPy's own kinds those of numbers; bfloat16 is of none of them.
    if found.dtype.kind in "OSU":
        raise BadInputError(
            "recorder.loss() needs a number, or what strategy.run returned, once the "
            f"step has ended. Received: {value!r}."
        )
    return found
