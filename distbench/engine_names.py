"""Who may start the tasks of a check, by name; light, as options and help list them."""

from __future__ import annotations

ENGINES = (
    "local",
    "slurm",
    "ray",
)
"""All but the first are a file of `distbench.engines` with the name of the engine."""
