"""TF_CONFIG, the environment and the folder that a task gets."""

from __future__ import annotations

import errno
import gc
import json
import os
import stat
import tempfile
import time
from pathlib import Path

import psutil
import pytest
from waiting import comes_true

from distbench.cluster import ClusterSpec, Task
from distbench.errors import ClusterError
from distbench.launch import rundir as rundir_module
from distbench.launch.rundir import RunDirectory, tell_unused
from distbench.launch.surroundings import (
    make_python_environment,
    make_task_environment,
)
from distbench.launch.tf_config import (
    assign_addresses,
    count_ports,
    list_hosts,
    make_tf_config,
)


def test_a_worker_is_told_its_peers() -> None:
    spec = ClusterSpec.parse("mwms:2")
    addresses = assign_addresses(spec, (2001, 2002))
    text = make_tf_config(spec.tasks[1], addresses)
    assert json.loads(text or "") == {
        "cluster": {"worker": ["127.0.0.1:2001", "127.0.0.1:2002"]},
        "task": {"type": "worker", "index": 1},
    }


def test_parameter_servers_come_with_chief_and_workers() -> None:
    spec = ClusterSpec.parse("ps:2+1")
    assert count_ports(spec) == 4
    addresses = assign_addresses(spec, (2001, 2002, 2003, 2004))
    text = make_tf_config(Task(role="ps", index=0), addresses)
    assert json.loads(text or "") == {
        "cluster": {
            "chief": ["127.0.0.1:2001"],
            "worker": ["127.0.0.1:2002", "127.0.0.1:2003"],
            "ps": ["127.0.0.1:2004"],
        },
        "task": {"type": "ps", "index": 0},
    }


@pytest.mark.parametrize("text", ["one", "mirrored:4", "central:2"])
def test_a_single_process_has_no_cluster(text: str) -> None:
    spec = ClusterSpec.parse(text)
    assert count_ports(spec) == 0
    assert make_tf_config(spec.tasks[0], assign_addresses(spec, ())) is None


def test_the_later_change_of_the_environment_wins() -> None:
    environment = make_task_environment(
        {"A": "0", "B": "0", "TF_CONFIG": "another cluster's"},
        {"A": "1", "C": "1"},
        {"C": "2"},
        tf_config=None,
    )
    assert environment == {"A": "1", "B": "0", "C": "2", "OPENBLAS_NUM_THREADS": "1"}


def test_a_given_tf_config_replaces_the_users() -> None:
    environment = make_task_environment({"TF_CONFIG": "old"}, tf_config="new")
    assert environment["TF_CONFIG"] == "new"


@pytest.mark.parametrize(
    ("given", "spared"),
    [
        ({"http_proxy": "http://there:1"}, "127.0.0.1"),
        ({"https_proxy": "http://there:1", "no_proxy": "a,b"}, "a,b,127.0.0.1"),
        (
            {"grpc_proxy": "http://there:1", "no_proxy": "a", "no_grpc_proxy": "c"},
            "c,127.0.0.1",
        ),
        ({"no_proxy": "a"}, None),
    ],
    ids=["none", "others", "others-of-grpc", "no-proxy"],
)
def test_no_proxy_is_asked_for_tasks(given: dict[str, str], spared: str | None) -> None:
    addresses = assign_addresses(ClusterSpec.parse("ps:1+1"), (1, 2, 3))
    environment = make_task_environment(
        given, tf_config="", hosts=list_hosts(addresses)
    )
    assert environment.get("no_grpc_proxy") == spared


def test_relative_entries_of_the_import_path_keep_their_meaning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    environment = make_python_environment({"PYTHONPATH": "the user's"})
    assert environment["PYTHONPATH"].split(":")[0] == str(tmp_path)


def test_the_allocator_is_the_users_where_he_has_set_it() -> None:
    assert "hugetlb" in make_python_environment({})["GLIBC_TUNABLES"]
    environment = make_python_environment({"GLIBC_TUNABLES": "glibc.malloc.check=3"})
    assert environment["GLIBC_TUNABLES"] == "glibc.malloc.check=3"


@pytest.mark.parametrize(
    ("given", "kept"), [("2", "1"), ("1", "1"), ("yes", "yes")], ids=str
)
def test_docstrings_are_never_left_out(given: str, kept: str) -> None:
    """tf_keras cannot be imported without its own."""
    environment = make_python_environment({"PYTHONOPTIMIZE": given})
    assert environment["PYTHONOPTIMIZE"] == kept


def test_a_run_directory_is_private_and_is_removed(tmp_path: Path) -> None:
    with RunDirectory(tmp_path) as directory:
        assert directory.path.parent == tmp_path
        assert stat.S_IMODE(directory.path.stat().st_mode) == 0o700
        folder = directory.make_folder("traces")
        assert directory.make_folder("traces") == folder
        (folder / "file").touch()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_may_be_named_after_any_function(tmp_path: Path) -> None:
    """Under LC_ALL=C without UTF-8 mode the system takes no other letters."""
    with RunDirectory(tmp_path) as directory:
        folders = [directory.make_folder(name) for name in ("größe", "große")]
        assert all(folder.name.isascii() and folder.is_dir() for folder in folders)
        assert len(set(folders)) == 2


@pytest.mark.parametrize("letter", ["x", "優"])
def test_a_folder_may_be_named_after_a_long_function(
    tmp_path: Path, letter: str
) -> None:
    names = [letter * 250, letter * 250 + "y"]
    with RunDirectory(tmp_path) as directory:
        folders = [directory.make_folder(name) for name in names]
        assert all(folder.is_dir() for folder in folders)
        assert folders[0] != folders[1]
        assert directory.make_folder(names[0]) == folders[0]


def test_a_place_that_tensorflow_cannot_name_is_refused(tmp_path: Path) -> None:
    """A latin-1 name, or any but ASCII under LC_ALL=C without UTF-8 mode."""
    known = tmp_path / "größe"
    known.mkdir()
    RunDirectory(known).close()
    with pytest.raises(ClusterError, match="Set TMPDIR to a folder with an ASCII name"):
        RunDirectory(tmp_path / "gr\udcf6\udcdfe")


def test_a_forgotten_run_directory_is_removed(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    (directory.make_folder("traces") / "file").touch()
    del directory
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_a_task_closed_for_writing_is_removed() -> None:
    # Whoever is not root has no way to the tests' own folders.
    with tempfile.TemporaryDirectory(dir="/tmp") as base:
        Path(base).chmod(0o777)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = _close_as_somebody(Path(base))
            finally:
                os._exit(code)
        assert os.waitpid(child, 0) == (child, 0)


def _close_as_somebody(base: Path) -> int:
    if os.geteuid() == 0:  # it may remove anything
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    directory = RunDirectory(base)
    folder = directory.make_folder("kept")
    (folder / "file").touch()
    folder.chmod(0o500)
    directory.close()
    return int(directory.path.exists())


def test_a_fork_of_the_bench_neither_removes_the_folder_nor_delays_it(
    tmp_path: Path,
) -> None:
    with RunDirectory(tmp_path) as directory:
        asked, answer = os.pipe()
        child = os.fork()
        if child == 0:
            directory.close()
            os.read(asked, 1)
            os._exit(0)
        begin = time.monotonic()
        directory.close()
        assert time.monotonic() - begin < rundir_module._HEIR_S
        assert list(tmp_path.iterdir()) == []
        os.write(answer, b"x")
        os.waitpid(child, 0)
        os.close(asked)
        os.close(answer)


def test_groups_of_one_run_do_not_share_files(tmp_path: Path) -> None:
    task = Task(role="ps", index=1)
    with RunDirectory(tmp_path) as directory:
        first, second = directory.add_group(), directory.add_group()
        names = {files.name_log(task) for files in (first, second)} | {
            files.name_stacks(task) for files in (first, second)
        }
        assert len(names) == 4
        assert all(name.parent.is_dir() for name in names)
        assert first.name_log(task).name == "ps-1.log"


def test_a_folder_that_cannot_be_written_is_the_machines_fault(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"cannot be written.*Set TMPDIR"):
        RunDirectory(tmp_path / "missing")


def test_no_temporary_folder_at_all_is_the_machines_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/no/such"])
    monkeypatch.setenv("TMPDIR", "/no/such")
    assert tell_unused() == ""
    with pytest.raises(ClusterError, match=r"No usable temporary.*Set TMPDIR"):
        RunDirectory()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (PermissionError(errno.EACCES, "Permission denied"), "this user may run it"),
        (BlockingIOError(errno.EAGAIN, "Try again"), "ulimit -u"),
    ],
    ids=["forbidden", "too-many"],
)
def test_a_process_that_cannot_start_is_the_machines_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, words: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("distbench.launch.process.subprocess.Popen", refuse)
    with pytest.raises(ClusterError, match=rf"could not start '/bin/sh'.*{words}"):
        RunDirectory(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("wanted", "is_told"),
    [
        ("", False),
        ("{taken}", False),
        ("{taken}/../{name}/", False),
        ("/no/such", True),
    ],
)
def test_a_temporary_folder_that_cannot_be_used_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: str, is_told: bool
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", wanted.format(taken=tmp_path, name=tmp_path.name))
    told = tell_unused()
    assert bool(told) is is_told
    if is_told:
        assert "'/no/such', where no file can be written" in told
        assert f"the run's files are in '{tmp_path}'" in told


def test_what_is_sent_to_the_bench_s_group_does_not_reach_the_heir_of_its_folder(
    tmp_path: Path,
) -> None:
    """Ctrl-C is: nobody would be left to remove what tasks still write."""
    with RunDirectory(tmp_path) as directory:
        heirs: list[psutil.Process] = []

        def find_heirs() -> list[psutil.Process]:
            children = psutil.Process().children()
            heirs[:] = [c for c in children if str(directory.path) in c.cmdline()]
            return heirs

        # A process that has just begun its program has no arguments for a moment.
        assert comes_true(find_heirs)
        (heir,) = heirs
        assert os.getpgid(heir.pid) == os.getsid(heir.pid) == heir.pid
