"""How the tasks of a check are started, as options and environment say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from distbench.checking.launches import make_launch
from distbench.errors import BadInputError, ClusterError
from distbench.launch.deadline import Deadline
from distbench.launch.engine import Engine, Places, Request, Room
from distbench.launch.rundir import RunDirectory
from distbench.launch.spares import Spares
from distbench.machine import Machine
from distbench.observe.launching import (
    ONE,
    OPEN_S,
    Launch,
    make_opening,
    start_one,
)
from distbench.options import CheckOptions
from distbench.scenario import Scenario

NAME = "TF_FUNCTION_JIT_COMPILE_DEFAULT"


def test_options_come_through(tmp_path: Path) -> None:
    options = CheckOptions(keras="legacy", jit=True, jobs=3, memory_gib=0.5)
    with RunDirectory(tmp_path) as directory:
        launch = make_launch(directory, options)
    assert (launch.keras, launch.jit, launch.sharers) == ("legacy", True, 3)
    assert launch.memory_gib == 0.5


@pytest.mark.parametrize(("timeout_s", "open_s"), [(5.0, OPEN_S), (300.0, 300.0)])
def test_who_waits_longer_for_a_scenario_waits_for_one_device_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timeout_s: float, open_s: float
) -> None:
    # Importing TensorFlow is a part of it where tasks are spawned.
    jobs = []
    monkeypatch.setattr(
        "distbench.observe.launching.start_group",
        lambda _, __, first: jobs.append(first),
    )
    with RunDirectory(tmp_path) as directory:
        launch = make_launch(directory, CheckOptions(timeout_s=timeout_s))
        start_one(launch, 1, None)
    assert [job.deadline for job in jobs] == [open_s]


@pytest.mark.parametrize("value", ["1", "TRUE"])
def test_a_default_that_hides_every_step_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv(NAME, value)
    with (
        RunDirectory(tmp_path) as directory,
        pytest.raises(BadInputError, match=f"{NAME} has XLA compile.*Unset it"),
    ):
        make_launch(directory, CheckOptions())


def test_a_default_that_compiles_nothing_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NAME, "false")
    with RunDirectory(tmp_path) as directory:
        assert make_launch(directory, CheckOptions()).directory is directory


@pytest.mark.parametrize(
    ("jit", "given", "started"),
    [
        (True, "", "--tf_xla_cpu_global_jit"),
        (True, "--tf_xla_auto_jit=2", "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"),
        # What a task sets later counts less than the variable does.
        (False, "--tf_xla_auto_jit=2", "--tf_xla_auto_jit=2 --tf_xla_auto_jit=-1"),
        (False, "", None),
        (None, "--tf_xla_auto_jit=2", None),
    ],
)
def test_flags_of_xla_are_as_the_check_has_them(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    jit: bool | None,
    given: str,
    started: str | None,
) -> None:
    monkeypatch.setenv("TF_XLA_FLAGS", given)
    environment = _find_environment(tmp_path, monkeypatch, jit=jit)
    assert environment.get("TF_XLA_FLAGS") == started


@pytest.mark.parametrize(
    ("keras", "given", "started"),
    [(None, "1", "1"), (None, None, None), ("3", "1", "0"), ("legacy", None, "1")],
)
def test_imports_are_made_for_the_keras_that_is_meant(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    keras: str | None,
    given: str | None,
    started: str | None,
) -> None:
    # A fork server that imported another one is of no use, if it lives.
    monkeypatch.delenv("TF_USE_LEGACY_KERAS", raising=False)
    if given is not None:
        monkeypatch.setenv("TF_USE_LEGACY_KERAS", given)
    environment = _find_environment(tmp_path, monkeypatch, keras=keras)
    assert environment.get("TF_USE_LEGACY_KERAS") == started


def _find_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> Mapping[str, str]:
    """What a launch with these options has the imports of its tasks see."""
    seen: list[Mapping[str, str]] = []
    monkeypatch.setattr(
        "distbench.observe.launching.start_group",
        lambda request, *_: seen.append(request.environment),
    )
    with RunDirectory(folder) as directory:
        opening = make_opening(Scenario(target="a.b:c"), Deadline(9.0))
        Launch(directory=directory, **options).start_cluster(ONE, opening)
    return seen[0]


def test_opening_has_the_time_of_its_scenario() -> None:
    deadline = Deadline(7.0)
    assert make_opening(Scenario(target="a.b:c"), deadline).deadline is deadline


@pytest.mark.parametrize(("asked", "most"), [(None, 600.0), (60.0, 60.0), (9e3, 9e3)])
def test_only_who_sets_no_deadline_has_patience_with_tasks_that_compute(
    tmp_path: Path, asked: float | None, most: float
) -> None:
    options = CheckOptions(timeout_s=asked)
    with RunDirectory(tmp_path) as directory:
        deadline = make_launch(directory, options).give_time(options.deadline_s)
    assert deadline.given_s == (120.0 if asked is None else asked)
    deadline.excuse(0.0, 1e9)
    assert deadline.allowed_s == most


class Asked(Spares):
    """Keeps what it was asked for, and hands itself out."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[Any] = []

    def take(self, key: Any, *_: Any) -> Any:
        self.keys.append(key)
        return self


def test_a_spare_is_taken_however_much_time_is_left(tmp_path: Path) -> None:
    with RunDirectory(tmp_path) as directory:
        launch = Launch(directory=directory, spares=(spares := Asked()))
        for timeout_s, seed in ((7.0, 1), (9.0, 1), (9.0, 2)):
            scenario = Scenario(target="a.b:c", seed=seed)
            launch.start_cluster(ONE, make_opening(scenario, Deadline(timeout_s)))
    first, again, other = spares.keys
    assert first == again != other


@pytest.mark.parametrize("memory_gib", [None, 1.0])
def test_a_spare_was_started_in_the_same_way(
    tmp_path: Path, memory_gib: float | None
) -> None:
    opening = make_opening(Scenario(target="a.b:c"), Deadline(9.0))
    with RunDirectory(tmp_path) as directory:
        launch = Launch(directory=directory, spares=(spares := Asked()))
        launch.start_cluster(ONE, opening)
        replace(launch, memory_gib=memory_gib).start_cluster(ONE, opening)
    first, other = spares.keys
    assert (first == other) is (memory_gib is None)


def test_nobody_waits_on_other_machines(tmp_path: Path) -> None:
    class Far(Engine):
        def inspect(self) -> Machine:
            raise AssertionError

        def find_room(self) -> Room:
            raise AssertionError

        def find_places(self, request: Request) -> Places:
            raise ClusterError("far away")

    opening = make_opening(Scenario(target="a.b:c"), Deadline(9.0))
    with RunDirectory(tmp_path) as directory:
        launch = Launch(directory=directory, spares=(spares := Asked()), engine=Far())
        with pytest.raises(ClusterError, match="far away"):
            launch.start_cluster(ONE, opening)
    assert spares.keys == []
