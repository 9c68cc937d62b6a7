"""A step of a compiled Keras model: a call of `fit` on one batch."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from distbench.trace.dtypes import find_dtype
from distbench.worker.state.ancestry import list_ancestry
from distbench.worker.stepping.at_once import trace_at_once
from distbench.worker.stepping.program import count_batch
from distbench.worker.stepping.steps import trace_scheduled

if TYPE_CHECKING:
    from distbench.worker.stepping.session import Session

_BASES = {
    "tf_keras.src.engine.training.Model": "tf_keras",
    "keras.src.models.model.Model": "keras",
}


def name_keras(candidate: Any) -> str | None:
    """The package of a Keras model, `tf_keras` or `keras`; None for anything else."""
    names = list_ancestry(candidate)
    return next((_BASES[name] for name in names if name in _BASES), None)


class FitStep:
    """A call of `fit` on one batch, with a train function of its own.

    Args:
        session: Where it is to run.
        model: What it trains.
        at_once: Whether one trace is to do; see `trace_at_once`. Without, variables are
            made as `fit` makes them.
    """

    any_size = False
    """Keras traces it for what it is given."""

    def __init__(self, session: Session, model: Any, *, at_once: bool = True) -> None:
        self._session = session
        self._model = model
        with session.strategy.scope():
            model.make_train_function(force=True)
        self._function = model.train_function
        if at_once:
            trace_at_once(find_traced(self._function))
        self._graphs: dict[Any, tf.Graph] = {}

    def trace(self, shards: Sequence[Any]) -> tf.Graph:
        """See `Step`."""
        # Of an iterator nothing counts but its kind, and on several devices making one
        # costs more than a step.
        kind = tuple((a.shape, a.dtype) for a in tf.nest.flatten(shards))
        if kind not in self._graphs:
            strategy = self._session.strategy
            dataset = _make_dataset(shards)
            batches = self._iterate(strategy.experimental_distribute_dataset(dataset))
            # A function is traced anew for another scope, so it has to be that in which
            # `fit` calls it: that of the strategy in tf_keras, none in Keras 3.
            is_within = name_keras(self._model) == "tf_keras"
            with strategy.scope() if is_within else nullcontext():
                traced = find_traced(self._function)
                given = batches, *self._list_further(traced)
                self._graphs[kind] = traced.get_concrete_function(*given).graph
        return self._graphs[kind]

    def _iterate(self, batches: Any) -> Any:
        """What `fit` hands to its train function."""
        return iter(batches)

    def _list_further(self, traced: Any) -> Iterator[Any]:
        """What else it hands: to one of several steps that is scheduled, their number.

        tf_keras reads that from its variable when the function is scheduled.
        """
        if (
            "steps_per_execution"
            in inspect.signature(traced.python_function).parameters
        ):
            yield self._model._steps_per_execution.value()

    def run(self, shards: Sequence[Any]) -> None:
        """See `Step`."""
        self._session.draws.tell_examples(shards)
        self._model.train_function = self._function
        history = self._model.fit(_make_dataset(shards), steps_per_epoch=1, verbose=0)
        self._session.program.shown = _read_shown(history, self._model)


class ScheduledFitStep(FitStep):
    """A call of `fit` whose one step a coordinator schedules on one of the workers."""

    def __init__(self, session: Session, model: Any, *, at_once: bool = True) -> None:
        # There is one for a strategy, and `fit` makes or finds it.
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(
            session.strategy
        )
        model._cluster_coordinator = self._coordinator
        super().__init__(session, model, at_once=at_once)

    def trace(self, shards: Sequence[Any]) -> tf.Graph:
        """See `Step`."""
        with trace_scheduled(self._session.strategy):
            return super().trace(shards)

    def _iterate(self, batches: Any) -> Any:
        """The iterators of all workers, which a step is traced for by their kind."""
        return iter(self._coordinator.create_per_worker_dataset(batches))._type_spec


def make_fit_step(session: Session, model: Any, *, at_once: bool = True) -> FitStep:
    """The kind of step that the cluster of a session runs; see `FitStep`."""
    kind = ScheduledFitStep if session.spec.traits.scheduled else FitStep
    return kind(session, model, at_once=at_once)


def _read_shown(history: Any, model: Any) -> dict[str, np.ndarray]:
    """The numbers that `fit` shows; a step of the user's may return anything.

    They come as Python's own, and floats with more digits than what they were computed
    in.
    """
    shown = getattr(history, "history", None) or {}
    last = {name: np.asarray(found[-1]) for name, found in shown.items() if found}
    dtype = np.promote_types(np.float32, find_dtype(model.variable_dtype))
    return {
        str(name): value.astype(dtype) if value.dtype.kind == "f" else value
        for name, value in last.items()
        if value.ndim == 0 and value.dtype.kind in "biuf"
    }


def _make_dataset(shards: Sequence[Any]) -> tf.data.Dataset:
    """The global batch, and once more: `fit` is told to take one of the two.

    At the end of a data set both Kerases make another iterator over it, for an epoch
    that does not come (`DataHandler.enumerate_epochs` of tf_keras,
    `EpochIterator._enumerate_iterator` of Keras 3).
    """
    batch = tf.nest.map_structure(lambda *parts: np.concatenate(parts), *shards)
    examples = tf.data.Dataset.from_tensor_slices(batch)
    return examples.batch(max(1, count_batch(batch))).repeat(2)


def find_traced(function: Any) -> Any:
    """The `tf.function` that takes the iterator: itself, or what it closes over."""
    if hasattr(function, "get_concrete_function"):
        return function
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    return next(cell for cell in cells if hasattr(cell, "get_concrete_function"))
