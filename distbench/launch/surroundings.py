"""What every Python process of the bench is started with, and by which means."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from distbench.errors import BadInputError
from distbench.machine import find_current_folder

Start = Literal["fork", "spawn"]

_ROOT = str(Path(__file__).parents[2])
_ALLOCATOR = "glibc.malloc.hugetlb=1:glibc.malloc.arena_max=1"
"""Huge pages, and one arena for all threads, which makes its blocks large enough.

A gRPC server allocates much when it starts, by a fault for each small page otherwise.
What that saves, scripts/benchmark measures.
"""
_PROXIES = {"grpc_proxy", "https_proxy", "http_proxy"}
"""Variables that have gRPC ask a proxy for every address, for 127.0.0.1 too."""
_SPARED = "no_grpc_proxy"
"""But not for those that end like one of these; it stands in the place of `no_proxy`.

https://github.com/grpc/grpc/blob/master/doc/environment_variables.md
"""


def make_task_environment(
    base: Mapping[str, str],
    *changes: Mapping[str, str],
    tf_config: str | None,
    hosts: Iterable[str] = (),
) -> dict[str, str]:
    """The environment of one task.

    Args:
        base: The bench's own environment.
        changes: Variables to set, the later ones winning.
        tf_config: Text of TF_CONFIG. None removes it: a TF_CONFIG that the bench was
            started with describes another cluster.
        hosts: Where the tasks of its cluster are: no proxy is asked for these.
    """
    # NumPy starts a thread per processor otherwise, in every task.
    environment = {"OPENBLAS_NUM_THREADS": "1"}
    environment.update(base)
    for change in changes:
        environment.update(change)
    environment.pop("TF_CONFIG", None)
    if tf_config is not None:
        environment["TF_CONFIG"] = tf_config
    if not _PROXIES.isdisjoint(environment):
        spared = environment.get(_SPARED, environment.get("no_proxy", ""))
        environment[_SPARED] = ",".join(filter(None, [spared, *hosts]))
    return environment


def make_python_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment that a Python process starts under.

    It finds what the bench finds, this package included, and NumPy starts no thread
    in it. How it allocates is settled as it starts, and forks inherit it. Tasks get
    their own environment back with the start message.
    """
    # Processes start in another folder, so relative entries would mean another place.
    here = find_current_folder()
    path = [str(here / entry) for entry in [*sys.path, _ROOT]]
    optimize = environment.get("PYTHONOPTIMIZE", "")
    if optimize.isdecimal() and int(optimize) > 1:
        # tf_keras edits docstrings as it is imported, and fails where there are none.
        environment = {**environment, "PYTHONOPTIMIZE": "1"}
    encoding = environment.get("PYTHONIOENCODING", "").partition(":")[0]
    return {
        "GLIBC_TUNABLES": _ALLOCATOR,
        **environment,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(path)),
        # What is printed goes to a log, which has no terminal's limits.
        "PYTHONIOENCODING": f"{encoding}:backslashreplace",
        "OPENBLAS_NUM_THREADS": "1",
    }


def add_root(path: str) -> str:
    """A PYTHONPATH under which a Python of another host finds this package as well."""
    return os.pathsep.join(filter(None, [_ROOT, path]))


def choose_start(wanted: Start | None, platform: str = sys.platform) -> Start:
    """How tasks are started on this system.

    Raises:
        BadInputError: The system has no such start, or none at all.
    """
    if platform not in ("linux", "darwin"):
        raise BadInputError(
            f"The bench cannot start tasks on {platform!r}. Expected Linux or macOS. "
            "Use WSL or a container."
        )
    if platform == "darwin" and wanted == "fork":
        # Its system libraries start threads that a fork loses.
        raise BadInputError(
            "start='fork' is not possible on macOS: a forked process cannot use its "
            "system libraries. Use start='spawn'."
        )
    return wanted or ("fork" if platform == "linux" else "spawn")
