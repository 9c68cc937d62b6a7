"""Every subject becomes a train program: one shape for the rest of the bench."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from distbench.errors import BadInputError
from distbench.scenario import PROGRAM, Scenario
from distbench.worker.families import KNOWN_BASES, name_family
from distbench.worker.paths import AGGREGATION_PATHS
from distbench.worker.workloads import WORKLOADS

Kind = Literal["optimizer", "program"]
_MEMBERS = ("build", "replica_step", "variables", "optimizer")


def recognise_subject(subject: Any) -> Kind:
    """Tell a train program from a callable that makes an optimizer.

    Raises:
        BadInputError: It is neither.
    """
    has = [name for name in _MEMBERS if callable(getattr(subject, name, None))]
    if len(has) == len(_MEMBERS):
        if not any(callable(getattr(subject, n, None)) for n in ("data", "dataset_fn")):
            raise BadInputError(
                f"Train program '{_describe(subject)}' brings no data. Expected "
                "'data(step)', which returns the global batch of a step."
            )
        return "program"
    if has and not callable(subject):
        missing = [name for name in _MEMBERS if name not in has]
        raise BadInputError(
            f"Train program '{_describe(subject)}' lacks {', '.join(missing)}. Expected "
            f"the methods {', '.join(_MEMBERS)} and data(step)."
        )
    if not callable(subject):
        raise BadInputError(
            f"Subject '{_describe(subject)}' cannot be checked. Expected a callable "
            "without arguments that returns an optimizer, or a train program with the "
            f"methods {', '.join(_MEMBERS)} and data(step). Received: an object of type "
            f"'{type(subject).__name__}'."
        )
    return "optimizer"


class Program:
    """A train program as the session runs it.

    Attributes:
        shards_known: Whether `replicas` makes a replica's share computable alone.
        replicas: Number of replicas whose share of the loss a replica computes; set
            before the step is traced. Only a workload's program looks at it.
        loss_reduction: How the replicas' losses combine.
    """

    shards_known = False
    replicas = 1
    loss_reduction: Literal["sum", "mean"] | None = None

    def build(self, strategy: tf.distribute.Strategy) -> None:
        """Make variables and optimizer, under the strategy's scope."""
        raise NotImplementedError

    def replica_step(self, batch: Any) -> Any:
        """One replica's step; returns its loss."""
        raise NotImplementedError

    def variables(self) -> Sequence[Any]:
        """The model's variables, in a fixed order."""
        raise NotImplementedError

    def optimizers(self) -> Sequence[Any]:
        """The optimizers, none where the program updates by hand."""
        raise NotImplementedError

    def data(self, step: int) -> Any:
        """The global batch of a step: a nest of arrays."""
        raise NotImplementedError

    def prove_exact(self, steps: int, shards: tuple[int, ...]) -> bool:  # noqa: ARG002  # a user's data proves nothing
        """Whether no sum of any step can round."""
        return False


class UserProgram(Program):
    """A train program that the user wrote."""

    def __init__(self, subject: Any) -> None:
        self._subject = subject() if inspect.isclass(subject) else subject
        declared = getattr(self._subject, "loss_reduction", None)
        if declared not in (None, "sum", "mean"):
            raise BadInputError(
                f"Train program '{_describe(subject)}': loss_reduction must be 'sum', "
                f"'mean' or None. Received: {declared!r}."
            )
        self.loss_reduction = declared

    def build(self, strategy: tf.distribute.Strategy) -> None:
        self._subject.build(strategy)

    def replica_step(self, batch: Any) -> Any:
        loss = self._call_step(batch)
        if loss is None:
            raise BadInputError(
                f"Train program '{_describe(self._subject)}': replica_step returned no "
                "loss. Expected a scalar tensor, this replica's loss. Received: None. "
                "Return the loss at the end of the step."
            )
        return loss

    def _call_step(self, batch: Any) -> Any:
        return self._subject.replica_step(batch)

    def variables(self) -> Sequence[Any]:
        return list(self._subject.variables())

    def optimizers(self) -> Sequence[Any]:
        optimizer = self._subject.optimizer()
        if optimizer is None:
            return []
        return list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]

    def data(self, step: int) -> Any:
        if not hasattr(self._subject, "data"):
            raise BadInputError(
                f"Train program '{_describe(self._subject)}' has dataset_fn but no "
                "data(step). Expected data(step): the global batch as NumPy arrays."
            )
        return self._subject.data(step)


class OptimizerProgram(Program):
    """An optimizer under a workload of the bench, on one aggregation path.

    Replica r's loss is the sum of its examples' losses over the *global* batch size,
    and an N-th of the penalty: summed over replicas, the loss of the global batch.
    """

    shards_known = True
    loss_reduction: Literal["sum", "mean"] | None = None

    def __init__(self, factory: Any, scenario: Scenario) -> None:
        self._factory = factory
        self._path = AGGREGATION_PATHS[scenario.path]
        self._workload = WORKLOADS[scenario.workload](
            examples=count_examples(scenario), dtype=scenario.dtype, seed=scenario.seed
        )
        self.loss_factor = 1
        self._optimizer: Any = None
        self.is_penalised = False

    def build(self, strategy: tf.distribute.Strategy) -> None:
        replicas = strategy.num_replicas_in_sync
        self.replicas = replicas
        self.loss_factor = replicas if self._path.scales_loss else 1
        self._workload.build()
        self._optimizer = self._factory()
        if name_family(self._optimizer) is None:
            raise BadInputError(
                f"Factory '{_describe(self._factory)}' returned no optimizer. Expected "
                f"one of {', '.join(KNOWN_BASES.values())}. Received: an object of type "
                f"'{type(self._optimizer).__name__}'."
            )
        self._path.configure(self._optimizer)

    def replica_step(self, batch: Any) -> Any:
        variables = self._trainable()
        with tf.GradientTape() as tape:
            losses = self._workload.compute_losses(batch)
            loss = tf.reduce_sum(losses) / tf.cast(
                self._workload.examples, losses.dtype
            )
            penalty = self._workload.compute_penalty()
            if penalty is not None:
                loss += penalty / tf.cast(self.replicas, loss.dtype)
            if self.loss_factor != 1:
                loss *= tf.cast(self.loss_factor, loss.dtype)
        gradients = tape.gradient(loss, variables)
        self._path.apply(self._optimizer, list(zip(gradients, variables, strict=True)))
        return loss

    def compute_penalty_gradient(self) -> list[tuple[Any, Any]]:
        """Gradient of the undivided penalty, by variable; empty without one."""
        variables = self._trainable()
        with tf.GradientTape() as tape:
            penalty = self._workload.compute_penalty()
        if penalty is None:
            return []
        gradients = tape.gradient(penalty, variables)
        return [
            (v, g) for g, v in zip(gradients, variables, strict=True) if g is not None
        ]

    def _trainable(self) -> list[Any]:
        # Legacy optimizers take the shards of a sharded variable, not the whole.
        flat: list[Any] = []
        for variable in self._workload.variables():
            is_sharded = isinstance(
                variable, tf.__internal__.distribute.ShardedVariable
            )
            flat.extend(variable.variables if is_sharded else [variable])
        return [variable for variable in flat if variable.trainable]

    def variables(self) -> Sequence[Any]:
        return self._workload.variables()

    def optimizers(self) -> Sequence[Any]:
        return [self._optimizer]

    def data(self, step: int) -> Any:
        return self._workload.data(step)

    def prove_exact(self, steps: int, shards: tuple[int, ...]) -> bool:
        return self._workload.dyadic and all(
            self._workload.prove_exact(step, shards) for step in range(steps)
        )


def make_program(subject: Any, scenario: Scenario) -> Program:
    """The program that a scenario trains."""
    if recognise_subject(subject) == "program":
        return UserProgram(subject)
    if scenario.workload == PROGRAM:
        raise BadInputError(
            f"Subject '{scenario.target}' is an optimizer and needs a workload. "
            f"Expected one of {', '.join(WORKLOADS)}."
        )
    return OptimizerProgram(subject, scenario)


def count_examples(scenario: Scenario) -> int:
    """Size of the global batch that a workload makes, G.

    A power of two, so that dividing by it is exact, and at least four examples for
    each replica, so that shards can differ.
    """
    if scenario.examples or scenario.split:
        return scenario.examples or sum(scenario.split)
    from distbench.cluster import ClusterSpec

    replicas = ClusterSpec.parse(scenario.cluster).replicas
    return max(8, 1 << (4 * replicas - 1).bit_length())


def count_batch(batch: Any) -> int:
    """Number of examples in a nest of arrays.

    Raises:
        BadInputError: The arrays have first axes of different lengths, or none.
    """
    arrays = [np.asarray(array) for array in tf.nest.flatten(batch)]
    lengths = {array.shape[0] if array.ndim else -1 for array in arrays}
    if len(lengths) != 1 or -1 in lengths:
        raise BadInputError(
            "data(step) must return arrays whose first axis counts the examples. "
            f"Received arrays of shapes {[array.shape for array in arrays]}."
        )
    return lengths.pop()


def _describe(subject: Any) -> str:
    name = getattr(subject, "__qualname__", None) or type(subject).__qualname__
    return str(name)
