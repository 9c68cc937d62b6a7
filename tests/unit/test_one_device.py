"""One run on one device for several scenarios: who shares it, and when it is anew."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from distbench import cluster
from distbench.checking.plan import Planned, plan_scenarios
from distbench.errors import BadInputError
from distbench.launch.deadline import Deadline
from distbench.launch.failure import TaskFailedError
from distbench.launch.start import Job
from distbench.machine import Machine
from distbench.observe import OneDevice
from distbench.observe.launching import ONE
from distbench.observe.preparing import prepare_both
from distbench.observe.subject import ObserverError
from distbench.options import CheckOptions
from distbench.scenario import Scenario
from distbench.target import TargetRef, parse_target

MACHINE = Machine(cores=2, memory_bytes=2**34, gpus=0)
OPENING = Job(name="open", payload={}, deadline=1.0)


def make_errand(target: TargetRef, scenario: Scenario | None = None) -> Any:
    return SimpleNamespace(
        target=target,
        scenario=scenario,
        one=ONE,
        opening=OPENING,
        deadline=Deadline(1.0),
    )


class Task:
    """A group of one task that answers how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.dismissed = self.closed = False
        self.polite = True

    def submit(
        self, job: str, payload: object, *, deadline: Deadline
    ) -> Callable[[], dict[str, Any]]:
        self.asked += 1
        answer = {"job": job, "asked": self.asked}
        return lambda: {"worker:0": answer}

    def dismiss(self) -> None:
        self.dismissed = True

    def close(self, *, polite: bool = True) -> None:
        if not self.closed:
            self.closed, self.polite = True, polite

    def __exit__(self, *error: object) -> None:
        self.close()


@pytest.fixture
def target(tmp_path: Path) -> TargetRef:
    (tmp_path / "own.py").write_text("def make(): ...\n")
    return parse_target(f"{tmp_path}/own.py:make")


@pytest.fixture
def started() -> list[Task]:
    return []


@pytest.fixture
def launch(started: list[Task], tmp_path: Path) -> Any:
    def start_cluster(*_: object) -> Task:
        started.append(Task())
        return started[-1]

    directory = SimpleNamespace(make_folder=lambda name: tmp_path / name)
    return SimpleNamespace(start_cluster=start_cluster, directory=directory)


def serve(one: OneDevice, target: TargetRef) -> Any:
    errand = make_errand(target)
    with one.serve(errand):
        return one.make_reference(errand, {})


def test_a_run_is_asked_for_once_and_its_task_ends_with_the_last_scenario(
    launch: Any, started: list[Task], target: TargetRef
) -> None:
    with closing(OneDevice(launch, scenarios=2)) as one:
        first = serve(one, target)
        assert not started[0].dismissed
        assert serve(one, target) == first
        assert [task.dismissed for task in started] == [True]
    assert [(task.asked, task.closed) for task in started] == [(1, True)]


def test_a_task_that_is_there_is_taken(
    launch: Any, started: list[Task], target: TargetRef
) -> None:
    task: Any = Task()
    with closing(OneDevice(launch, task)) as one:
        assert serve(one, target)["job"] == "reference"
    assert task.closed
    assert not started


@pytest.mark.parametrize("way", ["an error", "by request"])
def test_another_task_runs_it_again(
    way: str, launch: Any, started: list[Task], target: TargetRef
) -> None:
    with closing(OneDevice(launch, scenarios=3)) as one:
        serve(one, target)
        if way == "by request":
            one.replace()
        else:
            with (
                pytest.raises(ValueError, match="broken"),
                one.serve(make_errand(target)),
            ):
                raise ValueError("broken")
        serve(one, target)
        assert [task.asked for task in started] == [1, 1]
        assert [task.closed for task in started] == [True, False]
    assert started[-1].closed


class Failing(Task):
    """A task in which a job fails.

    Args:
        kind: Whose failure that is.
    """

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind

    def __enter__(self) -> Failing:
        return self

    def submit(
        self, job: str, payload: object, *, deadline: Deadline
    ) -> Callable[[], dict[str, Any]]:
        self.asked += 1

        def wait() -> dict[str, Any]:
            task = cluster.Task(role="worker", index=0)
            raise TaskFailedError(f"{self._kind} fails", task=task, kind=self._kind)

        return wait


@pytest.mark.parametrize("job", ["make_reference", "plan_rounds"])
@pytest.mark.parametrize(
    ("alone", "error"),
    [("subject", BadInputError), ("bench", ObserverError)],
)
def test_who_fails_as_the_bench_watches_is_asked_again_without(
    job: str, alone: str, error: type, launch: Any, target: TargetRef
) -> None:
    tasks: list[Any] = [Failing(alone), Failing("observer")]
    launch.start_cluster = lambda *_: tasks.pop()
    with closing(OneDevice(launch)) as one, one.serve(make_errand(target)):
        with pytest.raises(error, match="fails"):
            getattr(one, job)(make_errand(target), {})
        assert not tasks


class Trainers:
    """A cluster of which a task raises as it reads its input pipeline.

    Args:
        kind: Whose failure that is.
    """

    deadline = Deadline(1.0)

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def call(self, job: str, payload: object) -> None:
        task = cluster.Task(role="worker", index=0)
        raise TaskFailedError(f"{job} failed", task=task, kind=self._kind)


@pytest.mark.parametrize(
    ("kind", "asked"), [("subject", 1), ("bench", 0)], ids=["subject", "bench"]
)
def test_a_pipeline_that_fails_on_a_cluster_is_read_on_one_device(
    kind: str,
    asked: int,
    launch: Any,
    started: list[Task],
    target: TargetRef,
) -> None:
    """Else what fails everywhere would be said to fail on the cluster alone."""
    (item,) = plan("pipeline", clusters=("mwms:2",))
    trainers: Any = Trainers(kind)
    with closing(OneDevice(launch, scenarios=2)) as one:
        fails = pytest.raises(TaskFailedError, match="read failed")
        with one.serve(make_errand(target)), fails:
            prepare_both(one, trainers, make_errand(target, item.scenario), {})
        assert started[0].asked == asked


def test_what_is_asked_besides_is_asked_once_and_waited_for_at_last(
    launch: Any, started: list[Task], target: TargetRef
) -> None:
    with closing(OneDevice(launch, scenarios=3)) as one:
        for _ in range(2):
            with one.serve(make_errand(target)):
                one.make_reference(make_errand(target), {})
                one.begin_probes(make_errand(target), {})
                assert one.finish_probes() == {"job": "probe", "asked": 2}
                one.give_up()
                assert not started[0].closed
        one.replace()
        with one.serve(make_errand(target)):
            one.make_reference(make_errand(target), {})
            with pytest.raises(RuntimeError, match="not begun"):
                one.finish_probes()
    assert [task.asked for task in started] == [2, 1]


def test_a_task_that_is_asked_in_vain_is_ended_at_once(
    launch: Any, started: list[Task], target: TargetRef
) -> None:
    with closing(OneDevice(launch, scenarios=2)) as one:
        for task in (0, 1):
            with one.serve(make_errand(target)):
                one.make_reference(make_errand(target), {})
                one.begin_probes(make_errand(target), {})
                one.give_up()
                assert started[task].closed
    assert [(task.asked, task.polite) for task in started] == [(2, False)] * 2


def test_a_scenario_that_was_left_out_leaves_no_task(
    launch: Any, started: list[Task], target: TargetRef
) -> None:
    with closing(OneDevice(launch, scenarios=2)) as one:
        serve(one, target)
    assert started[0].closed


@pytest.mark.parametrize("scenarios", [1, 2])
def test_only_a_run_that_is_shared_has_a_folder_of_its_own(
    scenarios: int, launch: Any, tmp_path: Path
) -> None:
    with closing(OneDevice(launch, scenarios=scenarios)) as one:
        places = {one.find_folder(tmp_path / name) for name in "ab"[:scenarios]}
    assert len(places) == 1
    assert (places == {tmp_path / "a"}) == (scenarios == 1)


def plan(kind: str = "optimizer", **options: Any) -> tuple[Planned, ...]:
    return plan_scenarios("a.b:c", kind, CheckOptions(**options), MACHINE)


def count_runs(planned: tuple[Planned, ...]) -> int:
    """How many runs on one device scenarios need that follow one another."""
    pairs = itertools.pairwise(planned)
    return 1 + sum(left.reference != right.reference for left, right in pairs)


def test_as_many_replicas_share_a_run_whatever_the_cluster() -> None:
    clusters = ("mirrored:2", "mwms:2", "central:2", "mwms:4", "ps:2+1", "one")
    found = plan(clusters=clusters, workloads=("linear",), paths=("default", "user"))
    # Under parameter servers each step is one replica's.
    assert count_runs(found) == 2 * 3
    assert len(found) == 2 * len(clusters)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("pipeline", {}),
        ("program", {"restore_from": "mirrored:2"}),
        ("program", {"clusters": ("ps:2+1", "ps:3+1"), "in_flight": 3}),
    ],
)
def test_what_follows_from_the_cluster_is_shared_by_nobody(
    kind: str, options: dict[str, Any]
) -> None:
    found = plan(kind, **{"clusters": ("mirrored:2", "mwms:2"), **options})
    assert count_runs(found) == len(found) == 2
