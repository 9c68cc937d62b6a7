"""What has to be installed alike on all machines of a cluster."""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
from collections.abc import Mapping

_PACKAGES = ("distbench", "tensorflow", "tf-keras", "keras", "numpy")


def list_versions() -> dict[str, str]:
    """Versions of Python and of what computes on this machine, by name."""
    versions = {"python": ".".join(platform.python_version_tuple()[:2])}
    for package in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions


def find_difference(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """What another machine has in another version, in words; empty for nothing."""
    different = (
        f"{name} {theirs.get(name, 'not at all')} in place of "
        f"{ours.get(name, 'nothing')}"
        for name in sorted({*ours, *theirs})
        if ours.get(name) != theirs.get(name)
    )
    return ", ".join(different)
