"""What a task serves stays on its address, also if it asks for every interface."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest
from agent_support import FolderEngine
from launch_support import FIRST, SECOND, TIMEOUT_S, Starter, find_server
from waiting import comes_true, is_gone_soon

from distbench import doctor
from distbench.launch import local
from distbench.launch.bind_filter import find_own_address, install_bind_filter
from distbench.launch.failure import TaskFailedError

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="need Linux to have a say in what a task binds"
)


def expect_all(host: str) -> dict[str, str]:
    return {
        "every interface": host,
        "every interface, both families": f"::ffff:{host}",
        "every interface by way of IPv6": f"::ffff:{host}",
        "every interface of IPv6": "::1",
        "another address": "127.0.0.9",
        "datagrams": "0.0.0.0",
        "of a child": host,
    }


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_what_asks_for_every_interface_gets_loopback(start: Starter, how: str) -> None:
    found = start("mwms:2", start=how).call("listen", {}, deadline=TIMEOUT_S)
    assert found == {FIRST: expect_all("127.0.0.1"), SECOND: expect_all("127.0.0.1")}


def test_without_the_filter_it_gets_every_interface(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "LOOPBACK", "")
    found = start("mwms:1").call("listen", {}, deadline=TIMEOUT_S)[FIRST]
    assert found["every interface"] == found["of a child"] == "0.0.0.0"
    assert found["every interface, both families"] == "::"


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_on_another_host_it_gets_that_hosts_address(
    start: Starter, tmp_path: Path, how: str
) -> None:
    with FolderEngine(tmp_path) as engine:
        group = start("mwms:2", engine=engine, start=how)
        found = group.call("listen", {}, deadline=TIMEOUT_S)
        assert found[FIRST] == expect_all("127.0.0.11")
        assert found[SECOND] == expect_all("127.0.0.12")
        group.close()


def test_an_address_that_the_host_does_not_have_is_no_place_to_listen() -> None:
    # Of documentation (RFC 5737): nobody has it.
    assert find_own_address("192.0.2.1") == ""
    assert find_own_address("127.0.0.1") == "127.0.0.1"


def test_a_daemon_is_served_after_its_task(start: Starter, tmp_path: Path) -> None:
    asked, told = tmp_path / "asked", tmp_path / "told"
    os.mkfifo(asked)
    other = start("mwms:1")
    group = start("mwms:1")
    daemon = {"asked": str(asked), "told": str(told)}
    group.call("leave_listener", daemon, deadline=TIMEOUT_S)
    group.close()
    asked.write_text("now")
    assert comes_true(lambda: told.exists() and told.read_text() == "127.0.0.1")
    other.close()


def test_who_binds_without_a_warden_fails_at_once(
    start: Starter, tmp_path: Path
) -> None:
    asked, told = tmp_path / "asked", tmp_path / "told"
    os.mkfifo(asked)
    group = start("mwms:1")
    daemon = {"asked": str(asked), "told": str(told)}
    (found,) = group.call("leave_listener", daemon, deadline=TIMEOUT_S).values()
    os.kill(find_server().pid, signal.SIGKILL)
    assert is_gone_soon(group.pids[FIRST])
    asked.write_text("now")
    assert is_gone_soon(found["pid"])
    assert os.strerror(errno.ENOSYS) in told.read_text()


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_nothing_is_kept_of_a_filter_that_nobody_has(start: Starter, how: str) -> None:
    watcher = find_server().pid if how == "fork" else os.getpid()
    group = start("mwms:2", start=how)
    group.call("listen", {}, deadline=TIMEOUT_S)
    assert comes_true(lambda: count_filters(watcher) == 2)
    group.close()
    assert comes_true(lambda: count_filters(watcher) == 0)


def count_filters(pid: int) -> int:
    count = 0
    for place in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            count += "seccomp" in str(place.readlink())
    return count


def test_who_is_killed_while_it_binds_holds_up_nobody(start: Starter) -> None:
    rng = random.Random(11)
    for _ in range(8):
        group = start("mwms:2")
        wait = group.submit("listen_on_and_on", {}, deadline=TIMEOUT_S)
        time.sleep(rng.uniform(0.0, 0.05))  # drawn: any moment will do
        os.kill(group.pids[SECOND], signal.SIGKILL)
        with pytest.raises(TaskFailedError, match="was killed by SIGKILL"):
            wait()
    found = start("mwms:1").call("listen", {}, deadline=TIMEOUT_S)
    assert found == {FIRST: expect_all("127.0.0.1")}


def test_nonsense_fails_as_ever_and_holds_up_nobody(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    confined = start("mwms:1")
    found = confined.call("listen_nowhere", {}, deadline=TIMEOUT_S)
    monkeypatch.setattr(local, "LOOPBACK", "")
    free = start("mwms:1").call("listen_nowhere", {}, deadline=TIMEOUT_S)
    assert found == free
    assert errno.EFAULT in free[FIRST]["errors"]
    seen = confined.call("listen", {}, deadline=TIMEOUT_S)
    assert seen == {FIRST: expect_all("127.0.0.1")}


@pytest.mark.parametrize(
    ("release", "machine", "said"),
    [
        ("5.4.0-42-generic", "x86_64", r"needs Linux 5\.9, have Linux 5\.4"),
        ("6.1.0", "riscv64", "needs x86_64 or aarch64, have riscv64"),
    ],
)
def test_where_there_is_no_such_filter_it_says_what_is_needed(
    release: str, machine: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = ("Linux", "host", release, "#1", machine)
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(system))
    with pytest.raises(OSError, match=said):
        install_bind_filter()


def test_the_doctor_tells_where_servers_listen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (check,) = doctor.check_listening()
    assert check.ok
    assert check.found == "TensorFlow's servers are kept on 127.0.0.1"
    monkeypatch.setattr(doctor, "_try_listening", lambda: "seccomp: not permitted")
    (check,) = doctor.check_listening()
    assert check.ok
    assert "on every interface" in check.found
    assert "seccomp: not permitted" in check.found
