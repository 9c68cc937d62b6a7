"""Fixtures of the tests that start groups."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from launch_support import Starter, open_starter

from distbench.launch.rundir import RunDirectory


@pytest.fixture
def run_directory() -> Iterator[RunDirectory]:
    """A folder for runs, which is removed."""
    with RunDirectory() as directory:
        yield directory


@pytest.fixture
def start(run_directory: RunDirectory) -> Iterator[Starter]:
    """Starts groups, which are closed at the end."""
    with open_starter(run_directory) as starter:
        yield starter
