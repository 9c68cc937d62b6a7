"""How the tasks of a check are started, as options and environment say."""

from __future__ import annotations

from pathlib import Path

import pytest

from distbench.checking.launches import make_launch
from distbench.errors import BadInputError
from distbench.launch.rundir import RunDirectory
from distbench.options import CheckOptions

NAME = "TF_FUNCTION_JIT_COMPILE_DEFAULT"


def test_options_come_through(tmp_path: Path) -> None:
    options = CheckOptions(keras="legacy", jit=True, jobs=3, memory_gib=0.5)
    with RunDirectory(tmp_path) as directory:
        launch = make_launch(directory, options)
    assert (launch.keras, launch.jit, launch.sharers) == ("legacy", True, 3)
    assert launch.memory_gib == 0.5


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
