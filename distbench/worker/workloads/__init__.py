"""The workloads of the bench: each is the file of its name."""

from __future__ import annotations

import importlib
from typing import cast

from distbench.worker.workloads.base import Workload as Workload


def find_workload(name: str) -> type[Workload]:
    """The class of one of `scenario.choices.WORKLOADS`: `Linear` of `linear`."""
    module = importlib.import_module(f"{__name__}.{name}")
    return cast(type[Workload], getattr(module, name.capitalize()))
