"""A train program that the user wrote, as the bench runs it."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from distbench.errors import BadInputError
from distbench.worker.process.failures import blame_subject
from distbench.worker.process.intercept import call_converted
from distbench.worker.state.components import list_variables
from distbench.worker.state.metrics import is_metric
from distbench.worker.state.places import name_nameless
from distbench.worker.state.reachable import find_held, walk_variables
from distbench.worker.stepping.program import Program, name_subject
from distbench.worker.subjects.arguments import check_arguments, check_class
from distbench.worker.subjects.batches import Batches
from distbench.worker.subjects.between import Between
from distbench.worker.subjects.data_methods import list_data_methods

_WHOLE = (str, bytes, set, frozenset)
"""Collections that are not taken apart."""


class UserProgram(Program):
    """A train program that the user wrote."""

    def __init__(self, subject: Any) -> None:
        self._subject = _make_instance(subject)
        self.name = name_subject(subject)
        check_arguments(self._subject, self.name)
        declared = getattr(self._subject, "loss_reduction", None)
        if declared not in (None, "sum", "mean"):
            raise BadInputError(
                f"Train program '{self.name}': loss_reduction must be "
                f"'sum', 'mean' or None. Received: {declared!r}."
            )
        self.loss_reduction = declared
        self._batches = Batches(self._draw, self.name)
        self._between = Between(self._subject)

    def build(self, strategy: tf.distribute.Strategy) -> None:
        """Let the user's program make variables and optimizer."""
        self._subject.build(strategy)

    def check_in_flight(self) -> None:
        """See `Program`."""
        if self.acts_between_steps:
            raise BadInputError(
                f"Train program '{self.name}' does something in before_step(step), and "
                "there is nothing between steps in flight. Expected: a program without "
                "it, or one step at a time."
            )

    @property
    def acts_between_steps(self) -> bool:
        """See `Program`."""
        return getattr(self._subject, "before_step", None) is not None

    def before_step(self, step: int) -> None:
        """Call the user's, if there is one."""
        keeps = self.calls_python or self._between.tables
        if not (self.acts_between_steps or keeps):
            return
        with self._between.begin(step):
            if self.acts_between_steps:
                self._subject.before_step(step)

    def turn_to(self, tier: str, *, anew: bool = False) -> None:
        """See `Program`."""
        self._between.turn_to(tier, anew=anew)

    def replica_step(self, batch: Any) -> Any:
        """Run the user's step.

        Raises:
            BadInputError: It returned no loss.
        """
        loss = call_converted(self._subject.replica_step, batch)
        if loss is None:
            raise BadInputError(
                f"Train program '{self.name}': replica_step returned "
                "no loss. Expected a scalar tensor: its own loss. Received: None. "
                "Return the loss at the end of the step."
            )
        number = _take_number(loss)
        if number is None:
            raise BadInputError(
                f"Train program '{self.name}': replica_step must "
                "return its loss as one number. "
                f"Received: {_describe(loss)}. Return what is differentiated, "
                "tf.reduce_sum(losses) / global_batch_size for example."
            )
        return number

    def variables(self) -> Sequence[Any]:
        """What the user's program lists.

        Raises:
            BadInputError: It lists something else than variables.
        """
        wanted = (
            f"variables() of '{self.name}' must return a list of variables of "
            "TensorFlow or Keras, such as model.variables, not their names or values."
        )
        return list_variables(self._subject.variables(), wanted)

    def names(self) -> Mapping[int, str]:
        """Where the user's program holds the variables that it has given no name."""
        return name_nameless(self._subject)

    def held_variables(self) -> Iterable[Any]:
        """All that the user's program holds, but for generators of random numbers.

        A strategy gives each replica another one, and a state of its own.
        """
        return walk_variables(self._subject, beyond=(tf.random.Generator,))

    def optimizers(self) -> Sequence[Any]:
        """One, several or none.

        Raises:
            BadInputError: There is something else among them.
        """
        listed = _list_several(self._subject.optimizer())
        if received := next(filter(None, map(_describe_none, listed)), ""):
            raise BadInputError(
                f"optimizer() of '{self.name}' must return an optimizer that build() "
                f"made, a list of them, or None. Received: {received}. Slots would "
                "not be compared otherwise."
            )
        return [one for one in listed if one is not None]

    def unread_feeds(self) -> Sequence[str]:
        """All but the first that the user's program has."""
        return list_data_methods(self._subject)[1:]

    def root(self) -> Any:
        """The user's program."""
        return self._subject

    def lookup_tables(self) -> Sequence[Any]:
        """Those that the user's program holds."""
        return self._between.tables

    def metrics(self) -> Sequence[Any]:
        """Those that the user's program holds, whether it lists their state or not."""
        return find_held(self._subject, is_metric)

    def make_checkpoint(self) -> tf.train.Checkpoint:
        """The user's own, if there is one."""
        own = getattr(self._subject, "checkpoint", None)
        return own() if callable(own) else super().make_checkpoint()

    def data(self, step: int) -> Any:
        """The user's global batch of a step: the same however often it is asked for."""
        return self._batches.get(step)

    def _draw(self, step: int) -> Any:
        return self._subject.data(step)


def _make_instance(subject: Any) -> Any:
    if not inspect.isclass(subject):
        return subject
    check_class(subject, name_subject(subject))
    with blame_subject("build"):
        return subject()


def _list_several(given: Any) -> list[Any]:
    """What a program's `optimizer` returns, one by one.

    Sets and iterators stay as they are: they do not give the same ones in the same
    order, whoever asks.
    """
    if isinstance(given, Mapping):
        return list(given.values())
    if isinstance(given, Collection) and not isinstance(given, _WHOLE):
        with contextlib.suppress(TypeError):  # a proxy has the methods of any object
            return list(given)
    return [given]


def _describe_none(one: Any) -> str:
    """What an object is that is no optimizer for sure; otherwise `""`."""
    if isinstance(one, (str, bytes, int, float)) or inspect.isroutine(one):
        return f"{one!r}, an object of type '{type(one).__name__}'"
    if inspect.isclass(one):
        return f"the class '{one.__name__}' itself"
    if isinstance(one, (set, frozenset)):
        return "a set, whose order is another one in every process. Return a list"
    if isinstance(one, Iterator):
        return f"a {type(one).__name__}, which can be read once. Return a list"
    return ""


def _take_number(loss: Any) -> Any:
    """A loss as a scalar tensor, None where it is something else."""
    tensor = _try_tensor(loss)
    if not tf.is_tensor(tensor):
        return None
    if not (tensor.dtype.is_floating or tensor.dtype.is_integer):
        return None
    # An unknown shape can only be judged by the tensor that will have it.
    if tensor.shape.num_elements() not in (1, None):
        return None
    return tf.reshape(tensor, [])


def _describe(loss: Any) -> str:
    tensor = _try_tensor(loss)
    if not tf.is_tensor(tensor):
        return f"an object of type '{type(loss).__name__}'"
    return f"a {tensor.dtype.name} tensor of shape {tensor.shape}"


def _try_tensor(value: Any) -> Any:
    if tf.nest.is_nested(value):
        return value
    try:
        return tf.convert_to_tensor(value)
    except (TypeError, ValueError):
        return value
