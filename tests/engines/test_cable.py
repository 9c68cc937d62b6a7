"""A machine that goes silent: a host of its own in this one, whose cable is pulled."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from agent_support import FolderEngine
from launch_support import FIRST, TIMEOUT_S, open_starter
from waiting import is_gone_soon

from distbench.agent.wire import GONE_S, SEND_S
from distbench.launch.failure import TaskFailedError
from distbench.launch.rundir import RunDirectory

pytestmark = pytest.mark.nightly
HOST = f"db{os.getpid()}"


def ip(words: str) -> None:
    subprocess.run(["ip", *words.split()], check=True, capture_output=True)


@pytest.fixture
def far(tmp_path: Path) -> Iterator[FolderEngine]:
    """An engine whose node is another host, at the end of a cable."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("need root and the command ip, have not both")
    try:
        ip(f"netns add {HOST}")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"need network namespaces, have {error.stderr.decode().strip()}")
    try:
        ip(f"link add {HOST}a type veth peer name {HOST}b")
        ip(f"link set {HOST}b netns {HOST}")
        ip(f"addr add 10.213.77.1/24 dev {HOST}a")
        ip(f"link set {HOST}a up")
        for words in (f"addr add 10.213.77.2/24 dev {HOST}b", "link set lo up"):
            ip(f"-n {HOST} {words}")
        ip(f"-n {HOST} link set {HOST}b up")
        enter = ("ip", "netns", "exec", HOST)
        hosts = {"host": "10.213.77.1", "hosts": "10.213.77.2"}
        with FolderEngine(tmp_path, enter=enter, **hosts) as engine:
            yield engine
    finally:
        with suppress(subprocess.CalledProcessError):
            ip(f"link del {HOST}a")
        ip(f"netns del {HOST}")


def test_a_machine_that_goes_silent_is_lost_and_ends_what_it_runs(
    far: FolderEngine,
) -> None:
    with RunDirectory() as directory, open_starter(directory) as start:
        group = start("mwms:1", engine=far)
        seen = group.call("describe", {}, deadline=TIMEOUT_S)[FIRST]
        assert seen["addresses"]["worker"][0].startswith("10.213.77.2:")
        wait = group.submit("wait_stubbornly", {}, deadline=5 * GONE_S)
        ip(f"-n {HOST} link set {HOST}b down")
        lost = pytest.raises(TaskFailedError, match=r"\(10.213.77.2\) is gone")
        with lost as failure:
            wait()
    assert failure.value.kind == "died"
    assert is_gone_soon(seen["pid"], within_s=2 * SEND_S)
