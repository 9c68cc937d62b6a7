"""How many GPUs there are, and whose they are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from played_gpus import play_driver, show_gpus

from distbench.agent.node import _take_gpus
from distbench.cluster import ClusterSpec
from distbench.errors import BadInputError
from distbench.gpus import (
    SHARED_BY,
    VISIBLE,
    assign_gpus,
    count_sharers,
    list_gpus,
    list_models,
)


def play_devices(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    names: tuple[str, ...],
    visible: str | None,
) -> None:
    """Have a folder stand for /dev, and for where programs are found."""
    for name in names:
        (folder / name).touch()
    show_gpus(monkeypatch, str(folder), visible)


@pytest.mark.parametrize(
    ("visible", "count"),
    [
        (None, 3),
        ("", 0),
        ("-1", 0),
        ("0", 1),
        ("0,2", 2),
        ("0,-1,2", 1),
        ("0,1,2,3", 3),
    ],
    ids=str,
)
def test_gpus_are_counted_from_device_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str | None, count: int
) -> None:
    names = ("nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm", "null")
    play_devices(tmp_path, monkeypatch, names, visible)
    assert len(list_gpus(tmp_path)) == count


@pytest.mark.parametrize(
    ("script", "count"),
    [("echo 'GPU 0: H'; echo 'GPU 1: H'", 2), ("echo broken; exit 9", 1)],
    ids=["answers", "broken"],
)
def test_nvidia_smi_is_asked_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, count: int
) -> None:
    play_driver(tmp_path, script)
    play_devices(tmp_path, monkeypatch, ("nvidia0",), None)
    assert len(list_gpus(tmp_path)) == count


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        (None, ("0", "1")),
        ("1,0", ("1", "0")),
        ("1,2", ("1",)),
        ("7", ()),
        ("0,0", ("0",)),
        ("GPU-8c1a, GPU-77", ("GPU-8c1a", "GPU-77")),
    ],
    ids=str,
)
def test_gpus_are_called_what_cuda_calls_them(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    visible: str | None,
    names: tuple[str, ...],
) -> None:
    play_devices(tmp_path, monkeypatch, ("nvidia0", "nvidia1"), visible)
    assert list_gpus(tmp_path) == names


@pytest.mark.parametrize(
    ("visible", "models"),
    [(None, ["A", "B"]), ("1", ["B"]), ("1,0", ["B", "A"]), ("GPU-b", ["B"])],
)
def test_models_are_those_of_the_gpus_that_cuda_shows(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    visible: str | None,
    models: list[str],
) -> None:
    play_driver(
        tmp_path, "echo 'GPU 0: A (UUID: GPU-a1)'; echo 'GPU 1: B (UUID: GPU-b1)'"
    )
    show_gpus(monkeypatch, str(tmp_path), visible)
    assert list_models() == models


@pytest.mark.parametrize(("visible", "own"), [("4,6,7", "6,7"), (None, "1,2")])
def test_an_agent_leaves_the_gpus_of_others_alone(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, own: str
) -> None:
    show_gpus(monkeypatch, "", visible)
    monkeypatch.setenv(VISIBLE, os.environ.get(VISIBLE, ""))  # put back in the end
    if visible is None:
        monkeypatch.delenv(VISIBLE)
    _take_gpus((1, 2))
    assert os.environ[VISIBLE] == own


def assign(spec: str, gpus: tuple[str, ...]) -> list[str]:
    parsed = ClusterSpec.parse(spec)
    assigned = [assign_gpus(parsed, task, gpus) for task in parsed.tasks]
    assert {each["TF_FORCE_GPU_ALLOW_GROWTH"] for each in assigned} == {"true"}
    return [each["CUDA_VISIBLE_DEVICES"] for each in assigned]


@pytest.mark.parametrize(
    ("spec", "sharers", "own"),
    [
        ("one@gpu", 1, ["4"]),
        ("mirrored:3@gpu", 1, ["4,6,5"]),
        ("mwms:2@gpu", 1, ["4", "6"]),
        ("mwms:2x2@gpu", 1, ["4,6", "5,7"]),
        ("ps:2+2@gpu", 1, ["-1", "4", "6", "-1", "-1"]),
        ("mirrored:3@gpu", 2, ["4,6"]),
        ("mwms:4@gpu", 2, ["4", "4", "6", "6"]),
        ("ps:2+1@gpu", 2, ["-1", "4", "4", "-1"]),
        ("mwms:2x3@gpu", 2, ["4,6", "6,5"]),
    ],
)
def test_each_worker_has_gpus_of_its_own(
    monkeypatch: pytest.MonkeyPatch, spec: str, sharers: int, own: list[str]
) -> None:
    monkeypatch.delenv("TF_FORCE_GPU_ALLOW_GROWTH", raising=False)
    monkeypatch.setenv(SHARED_BY, str(sharers))
    assert assign(spec, ("4", "6", "5", "7")) == own


def test_what_the_user_says_of_memory_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "false")
    spec = ClusterSpec.parse("one@gpu")
    [assigned] = (assign_gpus(spec, task, ("0",)) for task in spec.tasks)
    assert assigned["TF_FORCE_GPU_ALLOW_GROWTH"] == "false"


@pytest.mark.parametrize("text", ["0", "-1", "two", "", "1000"])
def test_a_number_of_sharers_that_cannot_be_is_refused(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv(SHARED_BY, text)
    with pytest.raises(BadInputError, match=r"DISTBENCH_SHARE_GPUS .* from 1 to 999"):
        count_sharers()
