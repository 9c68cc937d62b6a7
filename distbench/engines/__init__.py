"""Engines by name: who starts the tasks of a check, on this machine or on a cluster."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from distbench.cluster import ALL, ClusterSpec
from distbench.engine_names import ENGINES
from distbench.errors import BadInputError, make_unknown_name_error
from distbench.launch.engine import Demand, Engine
from distbench.launch.local import LocalEngine


class _Opener(Protocol):
    def __call__(
        self, demand: Demand, *, allow_public: bool, log: Callable[[str], None]
    ) -> AbstractContextManager[Engine]: ...


def open_engine(
    name: str,
    scenarios: Iterable[Sequence[ClusterSpec]],
    *,
    jobs: int = 1,
    allow_public: bool = False,
    log: Callable[[str], None] = lambda _: None,
) -> AbstractContextManager[Engine]:
    """An engine with room for some scenarios at one time.

    Args:
        name: One of `ENGINES`. All but `local` are the file of their name here, with a
            function `open_engine`.
        scenarios: The clusters of each, as they were asked for; it has one at a time.
        jobs: How many scenarios there are at one time at most.
        allow_public: Whether nodes may have addresses that the world can reach.
        log: Told what the user should know, as how long it is waited for nodes.

    Raises:
        BadInputError: The engine cannot be used here, or a spec cannot be asked for.
        ClusterError: It gives no nodes.
    """
    if name == "local":
        return nullcontext(LocalEngine())
    if name not in ENGINES:
        raise make_unknown_name_error("Engine", name, ENGINES)
    opener: _Opener = importlib.import_module(f"{__name__}.{name}").open_engine
    return opener(make_demand(scenarios, jobs), allow_public=allow_public, log=log)


def make_demand(scenarios: Iterable[Sequence[ClusterSpec]], jobs: int = 1) -> Demand:
    """What the largest scenarios need, so many of them at one time."""
    scenarios = tuple(scenarios)
    specs = [spec for scenario in scenarios for spec in scenario]
    opened = [s for s in specs if ALL in (s.workers, s.replicas_per_worker)]
    if opened:
        raise BadInputError(
            f"'{opened[0]}' does not say how many: an engine has to be asked for a "
            "number of tasks and GPUs. Write the numbers."
        )
    sizes = [max(len(spec.tasks) for spec in scenario) for scenario in scenarios]
    return Demand(
        tasks=sum(sorted(sizes, reverse=True)[:jobs]),
        least=max(sizes),
        gpus_per_task=max(spec.gpus_per_task for spec in specs),
    )
