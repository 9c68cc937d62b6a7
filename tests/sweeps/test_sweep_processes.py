"""What takes many processes: fifty groups, and a pytest with workers of its own."""

from __future__ import annotations

import pytest
from launch_support import check_no_leak, open_starter
from plugin_suites import check_endings, check_one_document, prepare

from distbench.launch.rundir import RunDirectory

pytest_plugins = ["pytester"]


def test_fifty_groups_leak_no_descriptors() -> None:
    with RunDirectory() as directory, open_starter(directory) as start:
        check_no_leak(start, groups=50)


def test_verdicts_of_all_workers_are_in_one_document(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(pytester, monkeypatch)
    check_one_document(pytester, "-n", "2")


def test_how_each_test_ended_is_written_from_all_workers(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(pytester, monkeypatch)
    check_endings(pytester, "-n", "2")
