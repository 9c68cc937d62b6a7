"""What the machine has, and what the doctor says of it."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from played_gpus import play_driver, show_gpus

from distbench import doctor
from distbench import machine as machine_module
from distbench.cluster import ClusterSpec
from distbench.errors import ClusterError
from distbench.launch.watch import measure_room
from distbench.machine import Machine, describe_machine, inspect_machine
from distbench.preloading import PRELOADS

SMALL = Machine(cores=2, memory_bytes=2 * 2**30, gpus=1)


@pytest.mark.parametrize(
    ("spec", "lack"),
    [
        ("mwms:2", ""),
        ("ps:2+1", ""),
        ("mirrored:1@gpu", ""),
        ("mirrored:4@gpu", "need 4 GPUs, have 1"),
        ("mwms:2x2", "need 4 GPUs, have 1"),
        ("mwms:900", "GiB of free memory, have 2.0 GiB"),
    ],
)
def test_a_lack_is_named_as_need_and_have(spec: str, lack: str) -> None:
    found = SMALL.find_lack(ClusterSpec.parse(spec))
    assert found.endswith(lack)
    assert bool(found) == bool(lack)


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        (None, ["NVIDIA H200", "NVIDIA L4"]),
        ("0", ["NVIDIA H200"]),
        ("", []),
    ],
)
def test_gpus_are_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    visible: str | None,
    names: list[str],
) -> None:
    lines = ["GPU 0: NVIDIA H200 (UUID: GPU-1)", "GPU 1: NVIDIA L4 (UUID: GPU-2)"]
    play_driver(tmp_path, "\n".join(f"echo '{line}'" for line in lines))
    show_gpus(monkeypatch, str(tmp_path), visible)
    described = describe_machine()
    assert described["gpus"] == names
    assert described["cores"] >= 1
    assert described["cpu"]
    assert json.loads(json.dumps(described)) == described


def test_more_steps_than_memory_can_hold_are_a_lack() -> None:
    spec = ClusterSpec.parse("mwms:2")
    assert SMALL.find_lack(spec, steps=10_000) == ""
    lack = SMALL.find_lack(spec, steps=10**9)
    assert (
        lack == "need 3815.6 GiB of free memory to keep 1000000000 steps, have 2.0 GiB"
    )


def test_this_machine_has_cores_and_memory() -> None:
    machine = inspect_machine()
    assert machine.cores >= 1
    assert machine.memory_bytes > 0


def test_what_a_container_may_take_is_all_that_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = tmp_path / "memory.max"
    limit.write_text(f"{256 * 2**20}\n")
    monkeypatch.setattr(machine_module, "_CGROUP_FILES", (str(limit), "/no/such"))
    assert inspect_machine().memory_bytes == 256 * 2**20
    assert measure_room() < 256 * 2**20
    checks = {check.name: check for check in doctor.check_resources()}
    assert checks["memory"].found.startswith("0.2 GiB free of 0.2 GiB; need")
    limit.write_text("max\n")
    assert inspect_machine().memory_bytes > 256 * 2**20


def test_the_doctor_finds_this_machine_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    # Another test of this process may have imported it.
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    cheap = (
        doctor.check_system,
        doctor.check_packages,
        doctor.check_resources,
        doctor.check_ports,
    )
    checks = list(doctor.examine_machine(cheap))
    assert {"system", "python", "tensorflow", "cores", "memory", "GPUs", "ports"} <= {
        check.name for check in checks
    }
    assert "tensorflow" not in sys.modules


def test_the_doctor_finds_no_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/no/such"])
    (lack,) = (check for check in doctor.check_resources() if not check.ok)
    assert lack.name == "temporary folder"
    assert "set TMPDIR" in lack.found


def play_versions(monkeypatch: pytest.MonkeyPatch, **versions: str) -> dict[str, str]:
    def version(name: str) -> str:
        if name not in versions:
            raise doctor.metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(doctor.metadata, "version", version)
    return {
        check.name: check.found for check in doctor.check_packages() if not check.ok
    }


def test_a_keras_that_does_not_match_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    good = {"tensorflow": "2.20.1", "keras": "3.1", "numpy": "2.0"}
    assert play_versions(monkeypatch, **good, tf_keras="2.20.0") == {}
    bad = play_versions(monkeypatch, **good, tf_keras="2.19.0")
    assert "pip install 'tf_keras~=2.20.0'" in bad["tf_keras matches"]


def test_a_missing_package_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing = play_versions(monkeypatch, keras="3.1", numpy="2", tf_keras="2.20")
    assert list(missing) == ["tensorflow"]
    assert "pip install tensorflow" in missing["tensorflow"]


@pytest.mark.parametrize(
    ("space", "processes", "user", "lacks"),
    [
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 1, ""),
        (3 << 30, 500, 1, ""),
        (2 << 30, 4096, 1, "'ulimit -v' is 2097152; need 3145728"),
        (resource.RLIM_INFINITY, 60, 1, "'ulimit -u' is 60; need 500"),
        (resource.RLIM_INFINITY, 60, 0, ""),
    ],
    ids=["none", "enough", "space", "processes", "root"],
)
def test_limits_that_have_tensorflow_abort_are_found(
    monkeypatch: pytest.MonkeyPatch, space: int, processes: int, user: int, lacks: str
) -> None:
    given = {resource.RLIMIT_AS: space, resource.RLIMIT_NPROC: processes}
    monkeypatch.setattr(resource, "getrlimit", lambda number: (given[number], -1))
    monkeypatch.setattr(os, "geteuid", lambda: user)
    [check] = doctor.check_limits()
    assert check.ok is not bool(lacks)
    assert lacks in check.found


@pytest.mark.parametrize(
    ("listed", "said", "found"),
    [
        (0, "0", []),
        (2, "2", [(True, "2")]),
        (2, "1", [(False, "1 of 2: pip install 'tensorflow[and-cuda]'")]),
        (2, "", [(False, "none of 2: pip install 'tensorflow[and-cuda]'")]),
    ],
)
def test_gpus_that_tensorflow_does_not_find_are_told(
    monkeypatch: pytest.MonkeyPatch, listed: int, said: str, found: list
) -> None:
    done = subprocess.CompletedProcess([], 0, stdout=f"{said}\n", stderr="")
    monkeypatch.setattr(doctor, "count_gpus", lambda: listed)
    monkeypatch.setattr(doctor.subprocess, "run", lambda *_, **__: done)
    checks = [(check.ok, check.found) for check in doctor.check_found_gpus()]
    assert [ok for ok, _ in checks] == [ok for ok, _ in found]
    for (_, text), (_, begin) in zip(checks, found, strict=True):
        assert text.startswith(begin)


def test_a_fork_server_without_tensorflow_is_not_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda _: None)
    [check] = doctor.check_fork_server()
    assert not check.ok
    assert "is not installed" in check.found
    monkeypatch.setattr(doctor, "count_gpus", lambda: 1)
    assert list(doctor.check_found_gpus()) == []


def test_the_fork_server_is_tried_with_all_that_tasks_import(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[tuple[str, ...]] = []

    def refuse(preload: tuple[str, ...], _: object) -> None:
        tried.append(preload)
        raise ClusterError("seen")

    monkeypatch.setattr("distbench.launch.servers.get_fork_server", refuse)
    monkeypatch.setattr(doctor, "find_spec", lambda _: True)
    [check] = doctor.check_fork_server()
    assert (check.found, tried) == ("seen", [PRELOADS])


def test_ports_that_are_forbidden_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("no")

    monkeypatch.setattr(doctor.socket, "create_server", refuse)
    [check] = doctor.check_ports()
    assert not check.ok
    assert "127.0.0.1 cannot be used: no" in check.found


def test_another_system_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    checks = {check.name: check for check in doctor.check_system()}
    assert not checks["system"].ok
    assert "WSL" in checks["system"].found
