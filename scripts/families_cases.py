"""What `write_families.py` checks: each family on each of its aggregation paths."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from battery_cases import CLUSTERS, SCALES, find_name
from measured import ROOT

FAMILIES = {
    "legacy": "tf_keras.optimizers.legacy.Optimizer",
    "keras2": "tf_keras.optimizers.Optimizer",
    "keras3": "keras.optimizers.Optimizer",
    "v1": "tf.compat.v1.train.Optimizer",
}
_ADAMS = {
    "legacy": "tf_keras.optimizers.legacy.Adam",
    "keras2": "tf_keras.optimizers.Adam",
    "keras3": "keras.optimizers.Adam",
    "v1": "tensorflow.compat.v1.train.AdamOptimizer",
}
_CLIPS = ("clipvalue", "clipnorm", "global-clipnorm")
_PATHS = {
    "legacy": (
        "default",
        "aggregator",
        "aggregator-mean",
        "aggregator-two-stage",
        "user",
        "transformers",
        *_CLIPS,
    ),
    "keras2": ("default", "user", *_CLIPS),
    "keras3": ("default", *_CLIPS),
    "v1": ("default", "user"),
}
"""Those of the bench; `none` is a mistake and no way to train."""
_WORKLOADS = {"dense": "linear", "sparse": "embedding"}
_KERAS = {"legacy": "tf_keras", "keras2": "tf_keras", "keras3": "keras"}
_PROGRAMS = {
    ("legacy", "minimize"): "scenarios/programs/minimizing.py:FunctionOfTheLoss",
    ("v1", "minimize"): "scenarios/programs/v1.py:Minimizes",
    ("v1", "distributed-apply"): "scenarios/programs/v1.py:DistributedApply",
}

Gradients = Literal["dense", "sparse", "both"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeAdam:
    """Makes the family's Adam, under its loss scale if asked for."""

    family: str
    is_scaled: bool = False

    def __call__(self) -> Any:
        """The optimizer."""
        adam = find_name(_ADAMS[self.family])(0.125)
        return find_name(SCALES[self.family])(adam) if self.is_scaled else adam


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeModel:
    """Makes a compiled Keras model with the family's Adam."""

    family: str
    gradients: Gradients

    def __call__(self) -> Any:
        """Two dense layers, behind an embedding if the gradients are to be sparse."""
        keras = importlib.import_module(_KERAS[self.family])
        hidden = [keras.layers.Dense(4, activation="tanh")]
        if self.gradients == "sparse":
            hidden = [keras.layers.Embedding(5, 4), keras.layers.Flatten()]
        inputs = keras.layers.Input((3,))
        model = keras.Sequential([inputs, *hidden, keras.layers.Dense(1)])
        model.compile(MakeAdam(family=self.family)(), "mse")
        return model

    def data(self, step: int) -> Any:
        """Eight examples; words are shared by replicas and repeated within one."""
        import numpy as np

        rng = np.random.default_rng(step)
        targets = rng.normal(size=(8, 1)).astype("float32")
        if self.gradients == "sparse":
            return rng.integers(0, 4, size=(8, 3)), targets
        return rng.normal(size=(8, 3)).astype("float32"), targets


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One cell of the table.

    Attributes:
        family: Key of `FAMILIES`.
        path: Who sums the gradients, or which of the family's methods is called.
        gradients: Of which kind they are.
        cluster: Cluster spec.
        subject: What is checked.
        workload: The bench's, for an optimizer.
        bench_path: The bench's name of the path.
    """

    family: str
    path: str
    gradients: Gradients
    cluster: str
    subject: Any
    workload: str | None = None
    bench_path: str = "default"

    @property
    def id(self) -> str:
        """Reads like `keras3/clipnorm/sparse/mwms:2`."""
        return f"{self.family}/{self.path}/{self.gradients}/{self.cluster}"


def list_cases() -> tuple[Case, ...]:
    """All cells, those first that tell most: the defaults of all families."""
    cases = [
        case
        for cluster in CLUSTERS
        for family in FAMILIES
        for case in _list_family(family, cluster)
    ]
    return tuple(sorted(cases, key=lambda case: case.path != "default"))


def _list_family(family: str, cluster: str) -> Iterator[Case]:
    kinds: tuple[Gradients, ...] = ("dense", "sparse")
    for path in _PATHS[family]:
        for gradients in kinds:
            yield Case(
                family=family,
                path=path,
                gradients=gradients,
                cluster=cluster,
                subject=MakeAdam(family=family),
                workload=_WORKLOADS[gradients],
                bench_path=path,
            )
    if family in SCALES:
        # One example overflows, so that one replica alone has an Inf.
        yield Case(
            family=family,
            path="loss scale",
            gradients="dense",
            cluster=cluster,
            subject=MakeAdam(family=family, is_scaled=True),
            workload="overflow",
        )
    for (owner, path), target in _PROGRAMS.items():
        if owner == family:
            yield Case(
                family=family,
                path=path,
                gradients="both",
                cluster=cluster,
                subject=str(ROOT / target),
            )
    if family in _KERAS:
        for gradients in kinds:
            yield Case(
                family=family,
                path="fit",
                gradients=gradients,
                cluster=cluster,
                subject=MakeModel(family=family, gradients=gradients),
            )
