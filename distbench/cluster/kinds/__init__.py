"""The kinds of clusters, each a file with the name of the kind."""

from __future__ import annotations

from importlib import import_module

from distbench.cluster.kind import ClusterKind

_NAMES = (
    "one",
    "mirrored",
    "central",
    "mwms",
    "ps",
)
"""In the order in which messages list them. `worker.process.strategies` has a file of
the same name, which makes the strategy."""

KINDS: dict[str, ClusterKind] = {
    name: import_module(f"{__name__}.{name}").KIND for name in _NAMES
}
