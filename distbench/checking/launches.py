"""How the tasks of a check are started, as its options say."""

from __future__ import annotations

from distbench.launch.rundir import RunDirectory
from distbench.observe import Launch
from distbench.options import CheckOptions


def make_launch(directory: RunDirectory, options: CheckOptions) -> Launch:
    """Start tasks in a folder as the options of a check say."""
    return Launch(
        directory=directory,
        keras=options.keras,
        jit=options.jit,
        memory_gib=options.memory_gib,
        start=options.start,  # type: ignore[arg-type]  # validated by the options
    )
