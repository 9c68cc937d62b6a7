"""A train program: the one shape that every subject takes inside a task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import tensorflow as tf

from distbench.errors import BadInputError, count_things
from distbench.scenario import Scenario
from distbench.split import split_alike, split_unevenly
from distbench.worker.families import describe_control, find_counter
from distbench.worker.families.controls import make_control
from distbench.worker.stepping.misfits import describe_misfit
from distbench.worker.stepping.steps import ReplicaStep, ScheduledStep, Step

if TYPE_CHECKING:
    from distbench.worker.stepping.session import Session

LossReduction = Literal["sum", "mean"] | None
METHODS = ("build", "replica_step", "variables", "optimizer")
"""What a user's train program has, beside its data."""


class Program:
    """A train program as the session runs it.

    Attributes:
        name: What the user calls it.
        shards_known: Whether `replicas` makes a replica's share computable alone.
        replicas: Number of replicas whose share of the loss a replica computes; set
            before the step is traced. Only a workload's program looks at it.
        loss_reduction: How the replicas' losses combine.
        differentiated: Whether the losses are what a step differentiates, or makes that
            of, and not what it returns; known once it has run.
        averages: Whether gradients are N times their shares and are to be averaged, as
            an aggregation path of the bench has it.
        shown: Numbers that the last step showed by itself, by their names.
        is_compiled: Whether XLA compiles the step as a whole; known once it is built.
            Such a step can keep no tap, and only what it leaves is compared.
        resets: Whether `reset` does anything.
        calls_python: Whether the step calls Python while it runs, which may keep
            something there; known once it is traced.
    """

    name = ""
    shards_known = False
    replicas = 1
    loss_reduction: LossReduction = None
    differentiated = False
    averages = False
    shown: Mapping[str, np.ndarray] = MappingProxyType({})
    is_compiled = False
    resets = False
    calls_python = False

    def build(self, strategy: tf.distribute.Strategy) -> None:
        """Make variables and optimizer, under the strategy's scope."""
        raise NotImplementedError

    def make_variables(self, session: Session) -> None:
        """Have the step make what `build` leaves to it; often nothing.

        Args:
            session: Where it is to run. It has no taps yet, and knows no variable.
        """

    @property
    def acts_between_steps(self) -> bool:
        """Whether `before_step` does anything."""
        return False

    def before_step(self, step: int) -> None:
        """What happens between two steps, outside of any replica; often nothing."""

    def reset(self) -> None:
        """What a step does first of all, outside of any replica; often nothing."""

    def turn_to(self, tier: str, *, anew: bool = False) -> None:
        """See `Between`: what a program keeps in Python goes with its steps."""

    def replica_step(self, batch: Any) -> Any:
        """One replica's step; returns its loss."""
        raise NotImplementedError

    def make_step(
        self,
        session: Session,
        function: Callable[[Any], Any] | None = None,
        *,
        any_size: bool = False,
    ) -> Step:
        """A step with a trace of its own.

        Args:
            session: Where it is to run.
            function: What each replica runs; by default `replica_step`.
            any_size: Whether to trace it once for batches of all sizes.
        """
        kind = ScheduledStep if session.spec.traits.scheduled else ReplicaStep
        return kind(session, function or self.replica_step, any_size=any_size)

    def local_step(self, batch: Any) -> Any:
        """One replica's loss and local gradients; by default all of its step."""
        return self.replica_step(batch)

    def variables(self) -> Sequence[Any]:
        """The model's variables, in a fixed order."""
        raise NotImplementedError

    def held_variables(self) -> Iterable[Any]:
        """What the step may read and write, whether `variables` lists it or not."""
        return ()

    def bookkeeping(self) -> Sequence[Any]:
        """Variables in which a framework counts for itself, and trains nothing."""
        return ()

    def names(self) -> Mapping[int, str]:
        """What to call variables, by identity, whose own names do not tell enough."""
        return {}

    def lookup_tables(self) -> Sequence[Any]:
        """What maps keys to values, and may be changed by a step."""
        return ()

    def metrics(self) -> Sequence[Any]:
        """The Keras metrics that the program shows."""
        return ()

    def optimizers(self) -> Sequence[Any]:
        """The optimizers, none where the program updates by hand."""
        raise NotImplementedError

    def unread_feeds(self) -> Sequence[str]:
        """Methods that would give the program its data as well, and are not called."""
        return ()

    def root(self) -> Any:
        """What holds all that the step uses: here the optimizers."""
        return self.optimizers()

    def data(self, step: int) -> Any:
        """The global batch of a step: a nest of arrays."""
        raise NotImplementedError

    def read_data(
        self,
        strategy: tf.distribute.Strategy,
        folder: Path,
        name: str,
        steps: int,
        others: Sequence[str] = (),
    ) -> None:
        """Read an input pipeline, where the program brings one.

        Args:
            strategy: Under which it is read.
            folder: Where what was read is written to.
            name: Of the task that reads.
            steps: How many batches are needed.
            others: Names of the tasks that have read before, of whose examples one
                device looks for those that stand in the place of its own.
        """

    def take_data(self, folder: Path, names: Sequence[str], steps: int) -> None:
        """Train on what the tasks of a cluster read, where the program has to."""

    def exchange_data(self, step: int) -> Any | None:  # noqa: ARG002  # none by default
        """The batch of a step with what one device reads in the place of what it lacks.

        None where one device has all that the tasks of a cluster read.
        """
        return None

    def count_left_out(self, step: int) -> int:  # noqa: ARG002  # nothing by default
        """Examples of a batch that no replica gets, so that shards are even."""
        return 0

    def find_place(self, step: int) -> int:
        """Number of the batch in its epoch that a step trains on."""
        return step

    def is_padded(self, step: int) -> bool:  # noqa: ARG002  # not by default
        """Whether a replica read shorter examples, and some are filled up."""
        return False

    def split(
        self, scenario: Scenario, replicas: int, step: int = 0
    ) -> tuple[int, ...]:
        """The examples of each replica in a step.

        In the first step as the scenario says, or unevenly; in one whose batch has
        another size in the same proportions.

        Raises:
            BadInputError: The scenario's shares do not add up to the first batch.
        """
        examples = count_batch(self.data(step))
        if step:
            first = self.split(scenario, replicas)
            return first if sum(first) == examples else split_alike(first, examples)
        if scenario.split and sum(scenario.split) != examples:
            raise BadInputError(
                f"The split of '{self.name}' must add up to the "
                f"{count_things(examples, 'example')} of data(0). Received: "
                f"{', '.join(map(str, scenario.split))}, which is "
                f"{sum(scenario.split)}."
            )
        return scenario.split or split_unevenly(examples, replicas)

    def check_in_flight(self) -> None:
        """Raise BadInputError where its steps cannot be in flight."""

    def make_checkpoint(self) -> tf.train.Checkpoint:
        """What saves the program, and what a fresh one is restored from."""
        optimizers = list(self.optimizers())
        counters = [find_counter(optimizer) for optimizer in optimizers]
        return tf.train.Checkpoint(
            variables=list(self.variables()),
            optimizers=optimizers,
            counters=[counter for counter in counters if counter is not None],
        )

    def make_control(
        self, optimizers: Sequence[Any], *, keeps_descent: bool = False
    ) -> Any:
        """A subject in which nothing is the user's: the stock optimizer of the family.

        Args:
            optimizers: Those that the program uses, at least one.
            keeps_descent: See `distbench.worker.families.describe_control`.
        """
        control = describe_control(optimizers[0], keeps_descent=keeps_descent)
        return partial(make_control, *control)

    def prove_exact(self, steps: int, shards: tuple[int, ...]) -> bool:  # noqa: ARG002  # a user's data proves nothing
        """Whether no sum of any step can round."""
        return False


def take_examples(batch: Any, order: Any) -> Any:
    """The examples of a nest of arrays in another order.

    Args:
        batch: The nest.
        order: Their numbers: int [examples].
    """
    return tf.nest.map_structure(lambda a: np.asarray(a)[order], batch)


def make_arrays(batch: Any) -> Any:
    """A batch as a nest of NumPy arrays.

    Raises:
        BadInputError: It has examples of several lengths, or sparse ones.
    """
    return tf.nest.map_structure(_make_array, batch)


def _make_array(leaf: Any) -> Any:
    if isinstance(leaf, tf.RaggedTensor | tf.SparseTensor):
        raise _make_dense_error(type(leaf).__name__)
    array = np.asarray(leaf)
    # Of what a worker of parameter servers read, ragged rows are arrays in an array.
    if array.dtype.hasobject and any(np.ndim(element) for element in array.ravel()):
        raise _make_dense_error("RaggedTensor")
    return array


def _make_dense_error(received: str) -> BadInputError:
    return BadInputError(
        "A batch must be of dense arrays, shared out along their first axis. "
        f"Received: a {received}. Pad it where it is read (to_tensor(), "
        "tf.sparse.to_dense), and have the step take the padding away again, as "
        "tf.RaggedTensor.from_tensor(rows, lengths) does."
    )


def count_batch(batch: Any, source: str = "data(step)") -> int:
    """Number of examples in a nest of arrays.

    Args:
        batch: The nest.
        source: Where it comes from, for an error.

    Raises:
        BadInputError: The arrays have first axes of different lengths, or none.
    """
    arrays = list(map(_make_array, tf.nest.flatten(batch)))
    lengths = {array.shape[0] if array.ndim else -1 for array in arrays}
    if len(lengths) != 1 or -1 in lengths:
        raise BadInputError(
            f"{source} must return NumPy arrays whose first axis counts the examples. "
            f"{describe_misfit(batch, arrays)}"
        )
    return lengths.pop()


def describe_lacking(name: str, missing: Sequence[str], hint: str = "") -> str:
    """The sentence for a train program without some of its methods."""
    return (
        f"Train program '{name}' lacks {', '.join(missing)}. Expected the methods "
        f"{', '.join(METHODS)} and data(step).{hint}"
    )


def name_subject(subject: Any) -> str:
    """The name that a user would know a subject by."""
    name = getattr(subject, "__qualname__", None) or type(subject).__qualname__
    return str(name)
