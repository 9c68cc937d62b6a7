"""Sessions of subjects, opened in a task as the worker opens them."""

from __future__ import annotations

from typing import Any

from distbench.cluster import ClusterSpec
from distbench.scenario import Scenario


def open_strategy(cluster: str) -> tuple[ClusterSpec, Any]:
    """A cluster of this process alone, and its strategy."""
    from distbench.worker.process.strategies import configure_runtime, make_strategy

    spec = ClusterSpec.parse(cluster)
    configure_runtime(spec, "worker", 0)
    return spec, make_strategy(spec)


def open_session(
    program: Any, scenario: Scenario, strategy: Any, spec: ClusterSpec, **options: Any
) -> tuple[Any, list[Any]]:
    """A session of a program, and the shards of its first step."""
    from distbench.worker.stepping.session import Session
    from distbench.worker.subjects.sizes import find_sizes

    session = Session(program, strategy, spec, spec.tasks[0], **options)
    sizes = find_sizes(program, scenario, spec.replicas)
    return session, list(sizes.cut(0, program.data(0)))
