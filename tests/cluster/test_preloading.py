"""What is imported ahead is what the tasks of the check are forked from."""

from __future__ import annotations

from typing import Any

import pytest

from distbench.checking.check import check_target
from distbench.launch import servers
from distbench.launch.forkclient import ForkServer
from distbench.options import CheckOptions
from distbench.preloading import begin_imports
from distbench.target import parse_target

pytestmark = pytest.mark.cluster
TARGET = parse_target("scenarios/optimizers/adam.py:make_adam")


@pytest.mark.parametrize(
    ("cluster", "given"),
    [("mirrored:2", {}), ("one", {"keras": "legacy", "jit": True})],
)
def test_a_check_forks_from_the_server_that_imports_ahead(
    monkeypatch: pytest.MonkeyPatch, cluster: str, given: dict[str, Any]
) -> None:
    others: dict[Any, ForkServer] = {}
    monkeypatch.setattr(servers, "_SERVERS", others)
    options = CheckOptions(clusters=(cluster,), workloads=("linear",), **given)
    begin_imports(options)
    (ahead,) = others.values()
    try:
        check_target(TARGET, options).raise_for_status()
        assert list(others.values()) == [ahead]
    finally:
        for server in others.values():
            server.close()


def test_nothing_is_imported_where_tasks_are_not_forked_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others: dict[Any, ForkServer] = {}
    monkeypatch.setattr(servers, "_SERVERS", others)
    begin_imports(CheckOptions(start="spawn"))
    begin_imports(CheckOptions(engine="slurm"))
    assert not others
