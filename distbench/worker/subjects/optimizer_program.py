"""An optimizer under a workload of the bench, made into a train program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from distbench.cluster import ClusterSpec
from distbench.dyadic import is_power_of_two
from distbench.errors import BadInputError
from distbench.scenario import Scenario
from distbench.worker.families import KNOWN_BASES, find_family, name_family
from distbench.worker.state.components import list_shards
from distbench.worker.stepping.program import (
    METHODS,
    LossReduction,
    Program,
    describe_lacking,
    name_subject,
)
from distbench.worker.subjects.fit_steps import name_keras
from distbench.worker.subjects.keras_data import describe_lack
from distbench.worker.subjects.paths import AGGREGATION_PATHS
from distbench.worker.workloads import find_workload


class OptimizerProgram(Program):
    """An optimizer under a workload of the bench, on one aggregation path.

    Replica r's loss is the sum of its examples' losses over the *global* batch size,
    and an N-th of the penalty: summed over replicas, the loss of the global batch.
    """

    shards_known = True
    loss_reduction: LossReduction = "sum"

    def __init__(self, factory: Any, scenario: Scenario) -> None:
        self.name = name_subject(factory)
        self._factory = factory
        self._path_name = scenario.path
        self._path = AGGREGATION_PATHS[scenario.path]
        self.averages = self._path.scales_loss
        self._workload = find_workload(scenario.workload)(
            examples=count_examples(scenario),
            dtype=scenario.dtype,
            seed=scenario.seed,
            steps=scenario.scheduled,
        )
        self.loss_factor = 1
        self._weight = scenario.loss_weight
        self._optimizer: Any = None

    def build(self, strategy: tf.distribute.Strategy) -> None:
        """Make the workload's variables and call the factory."""
        replicas = strategy.num_replicas_in_sync
        self.replicas = replicas
        self.loss_factor = replicas if self._path.scales_loss else 1
        self._workload.build()
        self._optimizer = self._factory()
        if name_family(self._optimizer) is None:
            missing = _list_missing(self._optimizer)
            if len(missing) == 1:
                raise BadInputError(
                    describe_lacking(name_subject(self._optimizer), missing)
                )
            raise BadInputError(
                f"Factory '{self.name}' returned no optimizer. "
                f"Expected one of {', '.join(KNOWN_BASES.values())}, or a compiled "
                f"Keras model. Received: "
                f"{_describe_made(self._optimizer, self._factory)}."
            )
        family = find_family(self._optimizer)
        if self._path_name not in family.paths:
            base = next(iter(family.bases.values()))
            raise BadInputError(
                f"Optimizers of {base} have no aggregation path '{self._path_name}'. "
                f"Expected one of {', '.join(family.paths)}."
            )
        self._path.configure(self._optimizer)
        family.build(self._optimizer, self._trainable())

    def replica_step(self, batch: Any) -> Any:
        """Loss, gradients and update of one replica."""
        loss, pairs = self._differentiate(batch)
        self._path.apply(self._optimizer, pairs)
        return loss

    def local_step(self, batch: Any) -> Any:
        """Loss and gradients of one replica, and no update."""
        return self._differentiate(batch)[0]

    def _differentiate(self, batch: Any) -> tuple[Any, list[tuple[Any, Any]]]:
        variables = self._trainable()
        with tf.GradientTape() as tape:
            losses = self._workload.compute_losses(batch)
            if self._weight != 1:
                losses *= tf.cast(self._weight, losses.dtype)
            loss = tf.reduce_sum(losses) / tf.cast(
                self._workload.examples, losses.dtype
            )
            penalty = self._workload.compute_penalty()
            if penalty is not None:
                loss += penalty / tf.cast(self.replicas, loss.dtype)
            target = loss
            if self.loss_factor != 1:
                target *= tf.cast(self.loss_factor, loss.dtype)
        gradients = tape.gradient(target, variables)
        return loss, list(zip(gradients, variables, strict=True))

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
        shards = list_shards(self._workload.variables())
        return [variable for variable in shards if variable.trainable]

    def variables(self) -> Sequence[Any]:
        """The workload's variables."""
        return self._workload.variables()

    def optimizers(self) -> Sequence[Any]:
        """The factory's optimizer."""
        return [self._optimizer]

    def data(self, step: int) -> Any:
        """The workload's global batch of a step."""
        return self._workload.data(step)

    def prove_exact(self, steps: int, shards: tuple[int, ...]) -> bool:
        """Ask the workload, in integers."""
        if self._path.scales_loss and len(shards) & (len(shards) - 1):
            return False  # a mean over so many rounds
        # A power of two moves exponents alone, of which float16 has few.
        is_exact = is_power_of_two(self._weight) and self._workload.dtype != tf.float16
        if self._weight != 1 and not is_exact:
            return False
        return self._workload.dyadic and all(
            self._workload.prove_exact(step, shards) for step in range(steps)
        )


def _list_missing(made: Any) -> list[str]:
    """Methods of a train program that an object does not have."""
    return [name for name in METHODS if not callable(getattr(made, name, None))]


def _describe_made(made: Any, factory: Any) -> str:
    """What a factory returned in the place of an optimizer, and what it may be for."""
    if made is None:
        return "nothing, as of a function without a return"
    if name_keras(made) is not None:
        return describe_lack(factory)
    described = f"an object of type '{type(made).__name__}'"
    missing = _list_missing(made)
    if type(made) is factory and len(missing) > 1 and callable(made):
        return (
            f"{described}, whose class was the target and which can be called itself: "
            "name an instance as the target"
        )
    if len(missing) == len(METHODS) and type(made) is not factory:
        return described
    if not missing:
        return (
            f"{described}, which is a train program. Only optimizers and models are "
            "made by a factory: name the program itself as the target, or its class"
        )
    return f"{described}, which as a train program lacks {', '.join(missing)}"


def count_examples(scenario: Scenario) -> int:
    """Size of the global batch that a workload makes, G.

    A power of two, so that dividing by it is exact, and at least four examples for
    each replica, so that shards can differ.
    """
    if scenario.examples or scenario.split:
        return scenario.examples or sum(scenario.split)
    replicas = ClusterSpec.parse(scenario.cluster).replicas
    return max(8, 1 << (4 * replicas - 1).bit_length())
