"""Arguments that several commands take: the words of their help, a verdict's file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from distbench.errors import BadInputError
from distbench.input_file import read_input

if TYPE_CHECKING:
    from distbench.verdict import Verdict

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


def read_verdict(path: Path) -> Verdict:
    """The verdict in a file.

    Raises:
        BadInputError: It cannot be read, or is no verdict.
    """
    from distbench.verdict.document import verdict_from_json

    text = read_input(path, "the JSON that 'distbench check --json FILE' writes")
    try:
        return verdict_from_json(text)
    except BadInputError as error:
        raise BadInputError(f"'{path}': {error}") from error
