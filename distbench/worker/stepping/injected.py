"""Faults of replicas: steps in which one gets no batch, or wrong gradients.

Such a step has a trace of its own, so that all others are what they would be without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from distbench.errors import BadInputError
from distbench.fault import OF_GRADIENTS, Fault
from distbench.worker.taps.gradients import map_numbers, multiply

if TYPE_CHECKING:
    from distbench.worker.stepping.session import Session
    from distbench.worker.stepping.steps import Step

_BITS = {2: tf.uint16, 4: tf.uint32, 8: tf.uint64}
"""Unsigned integers by the bytes of a floating-point number."""


class Corruption:
    """Changes gradients as they come out of the tapes of some replicas.

    Args:
        faults: Of gradients, in one step.

    Attributes:
        touched: Whether a gradient has been changed.
    """

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._faults = faults
        self._begun: set[tuple[int, Any]] = set()
        self.touched = False

    def change(self, replica: int, gradient: Any) -> Any:
        """What a tape gives in the place of a gradient.

        Args:
            replica: Whose tape it is.
            gradient: A tensor, or slices of one.
        """
        mine = [fault for fault in self._faults if fault.rank == replica]
        if not mine:
            return gradient
        self.touched = True
        # A function that is traced anew begins again with its first gradient.
        place = (replica, tf.compat.v1.get_default_graph())
        is_first = place not in self._begun
        self._begun.add(place)
        for fault in mine:
            if fault.kind == "scale" or is_first:
                gradient = _change(gradient, _CHANGES[fault.kind], fault)
        return gradient


def _change(
    gradient: Any, change: Callable[[tf.Tensor, Fault], tf.Tensor], fault: Fault
) -> Any:
    if isinstance(gradient, tf.IndexedSlices) and fault.kind != "scale":
        gradient = _fill_empty(gradient)

    def change_flat(numbers: tf.Tensor) -> tf.Tensor:
        flat = change(tf.reshape(numbers, [-1]), fault)
        return tf.ensure_shape(tf.reshape(flat, tf.shape(numbers)), numbers.shape)

    return map_numbers(gradient, change_flat)


def _fill_empty(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    """One slice of zeros where there is none: a replica may have no examples.

    Dense gradients of such a replica are zeros, of which the first one is changed.
    """
    lacks = tf.cast(tf.equal(tf.size(gradient.indices), 0), tf.int32)
    shape = tf.concat([[lacks], tf.shape(gradient.values)[1:]], axis=0)
    zeros = tf.zeros(shape, gradient.values.dtype)
    row = tf.zeros([lacks], gradient.indices.dtype)
    return tf.IndexedSlices(
        tf.concat([gradient.values, zeros], axis=0),
        tf.concat([gradient.indices, row], axis=0),
        gradient.dense_shape,
    )


def _scale(flat: tf.Tensor, fault: Fault) -> tf.Tensor:
    return multiply(flat, fault.amount or 0.0)


def _put_nan(flat: tf.Tensor, fault: Fault) -> tf.Tensor:  # noqa: ARG001  # as the others
    return _change_first(flat, tf.fill(tf.shape(flat), tf.cast(np.nan, flat.dtype)))


def _flip(flat: tf.Tensor, fault: Fault) -> tf.Tensor:
    number = int(fault.amount or 0)
    whole = _BITS[flat.dtype.size]
    if number >= 8 * flat.dtype.size:
        raise BadInputError(
            f"Fault '{fault}': a gradient of dtype {flat.dtype.name} has the bits 0 to "
            f"{8 * flat.dtype.size - 1}."
        )
    mask = tf.constant(1 << number, whole)
    bits = tf.bitwise.bitwise_xor(tf.bitcast(flat, whole), mask)
    return _change_first(flat, tf.bitcast(bits, flat.dtype))


def _change_first(flat: tf.Tensor, changed: tf.Tensor) -> tf.Tensor:
    """The first element of one, where there is any, and the rest of the other."""
    return tf.where(tf.equal(tf.range(tf.size(flat)), 0), changed, flat)


_CHANGES = {"scale": _scale, "nan": _put_nan, "flip": _flip}


class FaultyStep:
    """One step with its faults; see `distbench.worker.stepping.steps.Step`.

    Args:
        session: The program.
        faults: Those of the step.
        as_whole: See `FaultySteps`.
        function: See there.
    """

    def __init__(
        self,
        session: Session,
        faults: Sequence[Fault],
        as_whole: bool,
        function: Callable[[Any], Any] | None,
    ) -> None:
        self._session = session
        self._step = session.make_step(function)
        self.any_size = self._step.any_size
        self._lost = {fault.rank for fault in faults if fault.kind == "drop"}
        meant = [fault for fault in faults if fault.kind in OF_GRADIENTS]
        if as_whole:
            meant = [replace(fault, rank=0) for fault in meant]
        self._corruption = Corruption(meant)
        self._here = [fault for fault in meant if session.has_replica(fault.rank)]

    def trace(self, shards: Sequence[Any]) -> tf.Graph:
        """Trace without running."""
        with self._corrupted():
            return self._step.trace(self._keep_batches(shards))

    def run(self, shards: Sequence[Any]) -> None:
        """Run it once.

        Args:
            shards: The batch of each replica, as it would be without the fault.

        Raises:
            BadInputError: There is no gradient that could be corrupted.
        """
        with self._corrupted():
            self._step.run(self._keep_batches(shards))
        if self._here and not self._corruption.touched:
            raise BadInputError(
                f"Fault '{self._here[0]}': no tape of '{self._session.program.name}' "
                "gives a gradient of its variables, so none can be corrupted. "
                "Expected a step that differentiates with tf.GradientTape, or in a "
                "graph by tf.gradients."
            )

    def _keep_batches(self, shards: Sequence[Any]) -> list[Any]:
        """What is left when the lost batches are gone."""
        return [
            tf.nest.map_structure(lambda a: a[:0], shard) if r in self._lost else shard
            for r, shard in enumerate(shards)
        ]

    @contextmanager
    def _corrupted(self) -> Iterator[None]:
        self._session.board.corruption = self._corruption
        try:
            yield
        finally:
            self._session.board.corruption = None


class FaultySteps:
    """The steps of a program that faults of replicas befall.

    Args:
        session: The program; its first step has been traced.
        faults: Of tasks too, which are not looked at.
        as_whole: Whether one device computes for all replicas: then it is its gradient
            that comes wrong, whosever was meant, and it gets every batch.
        function: What each replica runs; by default the program's whole step.
    """

    def __init__(
        self,
        session: Session,
        faults: Iterable[Fault],
        *,
        as_whole: bool = False,
        function: Callable[[Any], Any] | None = None,
    ) -> None:
        self._session = session
        self._faults: dict[int, list[Fault]] = {}
        for fault in faults:
            is_taken = fault.kind in OF_GRADIENTS or not as_whole
            if fault.task is None and is_taken:
                self._faults.setdefault(fault.step, []).append(fault)
        self._as_whole = as_whole
        self._function = function
        self._steps: dict[int, Step] = {}
        wrong = [f for found in self._faults.values() for f in found]
        if any(f.kind in OF_GRADIENTS for f in wrong) and not session.tapped:
            raise BadInputError(
                f"Fault '{wrong[0]}': XLA compiles the step of "
                f"'{session.program.name}' as a whole, and nothing in it can be "
                "changed. Expected a step without jit_compile."
            )

    def find(self, step: int) -> Step | None:
        """What runs a step that a fault befalls; None for any other."""
        if step in self._faults and step not in self._steps:
            faults = self._faults[step]
            self._steps[step] = FaultyStep(
                self._session, faults, self._as_whole, self._function
            )
        return self._steps.get(step)
