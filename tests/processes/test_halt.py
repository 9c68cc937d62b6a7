"""A halt ends what other threads wait for, and nothing of it is left."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from agent_support import FolderEngine
from launch_support import TIMEOUT_S, open_starter
from waiting import is_gone_soon

from distbench.checking.telling import Telling
from distbench.launch.engine import Engine
from distbench.launch.halt import Halt, HaltedError
from distbench.launch.local import LocalEngine
from distbench.launch.rundir import RunDirectory


@pytest.fixture(params=["local", "agents"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    if request.param == "local":
        yield LocalEngine()
        return
    with FolderEngine(tmp_path) as engine:
        yield engine


def test_a_job_that_is_not_wanted_any_more_ends_at_once(engine: Engine) -> None:
    halt = Halt()
    with RunDirectory() as directory, open_starter(directory) as start:
        group = start("mwms:2", engine=engine, halt=halt)
        wait = group.submit("wait_stubbornly", {}, deadline=600.0)
        pids = group.pids.values()
        threading.Timer(0.1, halt.set).start()
        begin_s = time.monotonic()
        with pytest.raises(HaltedError):
            wait()
        assert time.monotonic() - begin_s < TIMEOUT_S
        assert [pid for pid in pids if not is_gone_soon(pid)] == []
        with pytest.raises(HaltedError):
            start("mwms:2", engine=engine, halt=halt)


def test_groups_of_several_threads_have_tasks_of_their_own(engine: Engine) -> None:
    meet = threading.Barrier(3, timeout=TIMEOUT_S)

    def run(spec: str) -> set[int]:
        with RunDirectory() as directory, open_starter(directory) as start:
            group = start(spec, engine=engine)
            meet.wait()
            seen = group.call("describe", {}, deadline=TIMEOUT_S)
            meet.wait()
            return {answer["pid"] for answer in seen.values()}

    specs = ["mwms:2", "mwms:3", "ps:1+1"]
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(run, specs))
    assert [len(pids) for pids in found] == [2, 3, 3]
    assert len(set().union(*found)) == 8


class Overlapping:
    """A progress that notices when it is told by two threads at once."""

    def __init__(self) -> None:
        self._inside = threading.Lock()
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        assert self._inside.acquire(blocking=False)
        time.sleep(0.001)  # long enough for another thread to come in
        self.notes.append(text)
        self._inside.release()

    plan = start = finish = note


def test_progress_is_told_by_one_thread_at_a_time() -> None:
    progress = Overlapping()
    telling = Telling(progress)  # type: ignore[arg-type]  # it takes all for notes

    def tell(number: int) -> None:
        telling.note(f"{number}")
        telling.start(f"{number}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(tell, range(20)))
    assert sorted(progress.notes) == sorted(2 * list(map(str, range(20))))
    Telling(None).note("to nobody")
