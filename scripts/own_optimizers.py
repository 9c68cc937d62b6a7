"""The optimizers of scenarios/optimizers, as targets."""

from __future__ import annotations

OWN = tuple(
    f"scenarios/optimizers/{name}.py:make_{name}"
    for name in ("adam", "adamw", "averaged_sgd", "lazy_adam", "momentum", "sgd")
)
