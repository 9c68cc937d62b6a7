"""Arguments that several commands take, with the words of their help."""

from __future__ import annotations

from typing import Any

import typer

# Typer makes a parameter of its own from each of these wherever it stands.
TARGET: Any = typer.Argument(
    metavar="TARGET", help="package.module:attribute or path/to/file.py:attribute"
)
PATH: Any = typer.Option(metavar="PATH", help="Aggregation path.")
WORKLOAD: Any = typer.Option(metavar="NAME", help="Workload for an optimizer.")
STEPS: Any = typer.Option(
    metavar="K",
    help="Steps of training. [default: 3, or more where something first changes later, "
    "or for each worker of parameter servers to take one]",
)
DTYPE: Any = typer.Option(metavar="D", help="Dtype of the workloads.")
SEED: Any = typer.Option(metavar="N", help="Seed of data and initial values.")
KERAS: Any = typer.Option(
    metavar="legacy|3",
    help="Which Keras tf.keras is. [default: as TF_USE_LEGACY_KERAS says, in the "
    "environment or set by the target]",
)
