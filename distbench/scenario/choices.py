"""What a scenario may ask for: names with what they mean, and numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from distbench.cluster import ClusterSpec, spell_kinds
from distbench.errors import BadInputError, count_things, make_unknown_name_error
from distbench.limits import check_seed, check_timeout
from distbench.spelling import spell, spell_given

Tier = Literal["exact", "bounded", "free"]
TIERS: tuple[Tier, ...] = ("exact", "bounded", "free")

PATHS: Mapping[str, str] = MappingProxyType(
    {
        "default": "the optimizer sums the gradients over the replicas",
        "aggregator": "a gradient_aggregator sums them with all_reduce",
        "aggregator-mean": (
            "a gradient_aggregator takes their mean, and the loss is scaled up by the "
            "number of replicas"
        ),
        "aggregator-two-stage": (
            "a gradient_aggregator sums dense and sparse gradients in two stages"
        ),
        "user": ("the user calls all_reduce, then apply_gradients without aggregation"),
        "none": (
            "apply_gradients without aggregation, and nobody reduces: a planted bug"
        ),
        "transformers": (
            "gradient_transformers change the gradients after they were summed"
        ),
        "clipvalue": "the optimizer clips each element",
        "clipnorm": "the optimizer clips the norm of each gradient",
        "global-clipnorm": "the optimizer clips the norm of all gradients together",
    }
)
"""Aggregation paths: who sums the gradients, and what else the optimizer does."""

LARGE = "large"
WORKLOADS: Mapping[str, str] = MappingProxyType(
    {
        "linear": "a linear model on dyadic data, where every sum is exact",
        "mlp": "two dense layers on the UCI handwritten digits",
        LARGE: "a layer of 262,143 weights, and two variables of one shape",
        "embedding": "an embedding with rows that replicas share and repeat",
        "regularized": "a model with an L2 penalty",
        "constrained": (
            "a model with a constrained variable and one that gets no gradient"
        ),
        "overflow": "a linear model, and in one step an example that overflows",
        "counting": "a gradient for each step that tells how often it was applied",
    }
)
"""Model, data and loss that the bench brings when the subject is an optimizer."""

EXACT_WORKLOADS = ("linear", "counting")
"""Those of them that may prove that no sum rounds; of a user's data nobody knows."""

DTYPES = ("float32", "float64", "float16", "bfloat16")
FIRST_STEPS = 3
"""Steps where nobody says how many. Odd, since pairs of errors cancel."""
KERAS_VERSIONS = ("legacy", "3")
PROGRAM = ""
"""Workload of a train program, which brings its own."""
MODEL = "fit"
"""Workload of a compiled Keras model, which brings its own and is trained by `fit`."""
PIPELINE = "dataset"
"""Workload of a train program that brings an input pipeline."""
BROUGHT = (PROGRAM, MODEL, PIPELINE)
"""Workloads that the subject brings."""


def check_workload(name: str) -> None:
    """Raise BadInputError for a workload that does not exist."""
    if name not in WORKLOADS:
        raise make_unknown_name_error("Workload", name, WORKLOADS)


def check_path(name: str) -> None:
    """Raise BadInputError for an aggregation path that does not exist."""
    if name not in PATHS:
        raise make_unknown_name_error("Aggregation path", name, PATHS)


def check_restore_after(after: int, restore_from: str | None, steps: int) -> None:
    """Raise BadInputError for steps before a restore that there cannot be."""
    if after < 0:
        raise BadInputError(
            f"{spell('restore_after')} must be 0 or more. Received: {after}."
        )
    if after and not restore_from:
        raise BadInputError(
            f"There is nothing to restore after {count_things(after, 'step')}. "
            f"Expected {spell('restore_from')}, the cluster that trains first and "
            "saves."
        )
    if after and after == steps:
        # From the same data both come to the same state, and none would be missed.
        raise BadInputError(
            f"Both clusters would train {count_things(steps, 'step')} before the "
            f"restore. Expected another number in {spell('restore_after')} than in "
            f"{spell('steps')}."
        )


LARGER = 1024.0
"""As many times larger gradients are limited by any clip in use."""


def check_loss_weight(weight: float) -> None:
    """Raise BadInputError for a weight that leaves nothing of a loss."""
    if not 0 < weight < math.inf:
        raise BadInputError(
            f"{spell('loss_weight')} must be a positive, finite number. "
            f"Received: {weight}."
        )


def check_in_flight(in_flight: int, *specs: ClusterSpec) -> None:
    """Raise BadInputError for steps in flight where there cannot be any."""
    if in_flight < 1:
        raise BadInputError(
            f"{spell('in_flight')} must be 1 or more. Received: {in_flight}."
        )
    for spec in specs:
        if in_flight > 1 and not spec.traits.scheduled:
            raise BadInputError(
                f"Cluster '{spec}' has no steps in flight: its replicas take every "
                "step together. Expected a cluster "
                f"{spell_kinds(lambda kind: kind.scheduled)}. "
                f"Received: {spell_given('in_flight', in_flight)}."
            )


def check_numbers(
    *, steps: int, seed: int, timeout_s: float, dtype: str, keras: str | None
) -> None:
    """Raise BadInputError for settings that no scenario can have."""
    if steps < 1:
        raise BadInputError(f"{spell('steps')} must be 1 or more. Received: {steps}.")
    check_seed(seed)
    check_timeout(timeout_s)
    if dtype not in DTYPES:
        raise make_unknown_name_error(spell("dtype"), dtype, DTYPES)
    if keras is not None and keras not in KERAS_VERSIONS:
        raise make_unknown_name_error(spell("keras"), keras, KERAS_VERSIONS)
