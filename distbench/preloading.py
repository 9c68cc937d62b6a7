"""What tasks have imported before they are forked, and under which environment."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from distbench.gpus import VISIBLE
from distbench.xla import XLA_FLAGS

if TYPE_CHECKING:
    from distbench.options import CheckOptions

PRELOADS: tuple[str, ...] = (
    "tensorflow",
    "tf_keras",
    "distbench.worker.main",
    "distbench.worker.process.beforehand",
)
"""Modules that the fork server imports for all tasks: none of them runs an op."""
_LEGACY = "TF_USE_LEGACY_KERAS"


def make_environment(
    *, keras: str | None, jit: bool | None, device: str | None
) -> dict[str, str]:
    """Variables that tasks have to see, beyond the bench's own.

    Args:
        keras: `legacy` or `3`; None keeps the user's `TF_USE_LEGACY_KERAS`.
        jit: Whether XLA compiles; None leaves it to TensorFlow.
        device: What the cluster runs on, `cpu` or `gpu`.
    """
    environment = {"TF_CPP_MIN_LOG_LEVEL": "3", "GRPC_FAIL_FAST": "use_caller"}
    # Named even where it stays as it is: the imports read it, so that tasks of
    # another value cannot come of them.
    if keras is not None:
        environment[_LEGACY] = "1" if keras == "legacy" else "0"
    elif (value := os.environ.get(_LEGACY)) is not None:
        environment[_LEGACY] = value
    flags = os.environ.get(XLA_FLAGS, "")
    if jit:
        # XLA leaves CPUs alone unless it is told otherwise before it starts.
        environment[XLA_FLAGS] = f"{flags} --tf_xla_cpu_global_jit".strip()
    elif jit is False and flags:
        # What they say counts more than what a task says of XLA later.
        environment[XLA_FLAGS] = f"{flags} --tf_xla_auto_jit=-1"
    if device == "cpu":
        # Keeps TensorFlow from looking for a driver that nobody will use.
        environment[VISIBLE] = "-1"
    return environment


def begin_imports(options: CheckOptions) -> None:
    """Have the fork server of a check import while the bench imports its own modules.

    Every check asks one CPU first. Without this it comes to the same, but later.

    Raises:
        BadInputError: This system cannot start tasks so.
    """
    from distbench.launch.servers import get_fork_server
    from distbench.launch.surroundings import Start, choose_start

    start: Start | None = options.start  # type: ignore[assignment]  # validated there
    if options.engine != "local" or choose_start(start) != "fork":
        return
    environment = make_environment(keras=options.keras, jit=options.jit, device="cpu")
    with contextlib.suppress(OSError):  # told by whoever wants the server
        get_fork_server(PRELOADS, environment)
