"""What is told of a run that ended before anything was compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from distbench.checking.controls import Controls
from distbench.checking.failing import Failing
from distbench.checking.origin import Control
from distbench.checking.plan import Planned
from distbench.cluster import ClusterSpec, Task
from distbench.evidence import Tier
from distbench.launch.failure import TaskFailedError
from distbench.observe import Observation
from distbench.observe.errand import Errand
from distbench.scenario import Scenario
from distbench.scenario.choices import PIPELINE
from distbench.trace import Trace, TraceKey
from distbench.trace.files import write_trace
from distbench.verdict import Run, Status

FIRST = Task(role="worker", index=0)
BOTH: tuple[Tier, ...] = ("exact", "bounded")


def _observe_nothing(item: Planned) -> Observation | tuple[Run, ...]:
    raise AssertionError(f"{item.scenario.id} is not to run again.")


def plan(**scenario: Any) -> Planned:
    """A scenario on CPUs."""
    made = Scenario(target="m:f", **{"cluster": "mwms:2", **scenario})
    spec = ClusterSpec.parse(f"{made.cluster}@cpu")
    return Planned(scenario=made, spec=spec, optional=False)


def fail(message: str = "it raised", **told: Any) -> TaskFailedError:
    return TaskFailedError(message, **{"task": FIRST, "kind": "subject", **told})


def judge(
    item: Planned,
    failure: TaskFailedError,
    *,
    asked: tuple[Tier, ...] = ("bounded",),
    control: Callable[..., Control | None] = lambda *_, **__: None,
    observe_again: Callable[[Planned], Any] = _observe_nothing,
    **seen: Any,
) -> list[Run]:
    """The runs of a scenario that failed, in the tiers that were asked for."""
    controls = cast(Controls, SimpleNamespace(run=control))
    failing = Failing(asked, controls, observe_again)
    return list(failing.judge(item, Observation(failure=failure, **seen), failure))


def make_errand(folder: Path) -> Errand:
    """Of a run that left its traces in a folder."""
    return cast(Errand, SimpleNamespace(folder=folder, reference=folder))


def ask_nobody(*_: object) -> Control | None:
    raise AssertionError("Nobody asks whose fault it is.")


def test_a_broken_cluster_is_told_for_the_tiers_that_the_data_can_have() -> None:
    """As a failure of the subject is: 10 examples prove nothing to the exact tier."""
    item, died = plan(workload="linear"), fail("worker-0 died", kind="died")
    runs = judge(item, died, asked=BOTH, control=ask_nobody, tiers=("bounded",))
    assert [(run.tier, run.status) for run in runs] == [("bounded", Status.ERROR)]


def test_a_failure_of_a_train_program_is_told_once() -> None:
    """It came for the exact tier as well, which no data of a user's can have."""
    item, died = plan(workload=PIPELINE), fail("worker-0 died", kind="died")
    runs = judge(item, died, asked=BOTH, control=ask_nobody)
    assert [run.tier for run in runs] == ["bounded"]


def test_who_raised_is_named_with_the_cluster_that_it_is_of() -> None:
    """A scenario that restores has another cluster, which trains before."""
    item = plan(restore_from="mirrored:2")
    for name, words in (("mirrored:2@cpu", "'mirrored:2@cpu'"), ("", f"'{item.spec}'")):
        [run] = judge(item, fail(cluster=name, phase="save"))
        assert f"task worker-0 of {words} raised" in run.findings[0].explanation


@pytest.mark.parametrize(("where", "status"), [("mwms:2", "refused"), ("", "fail")])
def test_what_a_cluster_that_trains_before_is_refused_is_refused(
    where: str, status: str
) -> None:
    """Its control is a stock optimizer on that same cluster."""
    failure = fail(
        cluster="mwms:2@cpu",
        exception="InternalError",
        message="Multiple CPU devices",
        traceback='  File "/site-packages/tensorflow/python/eager/a.py", line 1, in f\n'
        "    raise InternalError(message)\n",
    )

    def run(scenario: Scenario, spec: ClusterSpec, _: object) -> Control | None:
        is_it = scenario.cluster == where and not scenario.restore_from
        return Control(failure=failure) if is_it and str(spec) == "mwms:2@cpu" else None

    item = plan(cluster="ps:2+1", restore_from="mwms:2")
    [run_] = judge(item, failure, control=run)
    assert run_.status == status
    if status == "refused":
        assert "'mwms:2@cpu', which trains before: InternalError" in run_.message


@pytest.mark.parametrize(
    ("message", "words", "meant"),
    [
        ("ValueError: destinations can not be empty", "tf.identity", True),
        ("ValueError: the batch can not be empty", "tf.identity", False),
        ("Unable to lift tensor <tf.Tensor 'a/Initializer/b:0'>", "in build()", True),
        ("Unable to lift the lid", "in build()", False),
    ],
)
def test_words_that_do_not_say_what_is_meant_are_explained(
    message: str, words: str, meant: bool
) -> None:
    failure = TaskFailedError(message, task=FIRST, kind="subject", message=message)
    [run] = judge(plan(), failure)
    assert (words in run.findings[0].explanation) == meant


def test_workers_that_never_meet_are_told_with_the_steps_that_they_finished(
    tmp_path: Path,
) -> None:
    """Wherever the failure was: what was under way is no tier then."""
    item = plan()
    key = TraceKey(step=1, phase="loss", variable="", replica=0)
    part = Trace(
        name="", replicas=2, shards=(1, 1), variables=(), values={key: np.float32(1.0)}
    )
    for task in item.spec.tasks:
        write_trace(part, tmp_path, f"observed-bounded-{task}")
    wait = {"words": "collective 7", "mismatch": True, "number": 7, "shape": ""}
    late = fail(
        "late",
        kind="timeout",
        phase="before_step",
        collectives={FIRST: {**wait, "shapes": [""], "node": "Reduce"}},
    )
    [run] = judge(item, late, errand=make_errand(tmp_path), tiers=("bounded",))
    assert run.findings[0].step == 2


@pytest.mark.parametrize("jit", [True, None])
def test_what_is_raised_under_xla_is_told_with_the_option_that_leaves_it_out(
    jit: bool | None,
) -> None:
    [run] = judge(plan(jit=jit), fail())
    assert ("'jit=False'" in run.findings[0].explanation) == bool(jit)


@pytest.mark.parametrize(
    ("split", "shards", "message", "wanted", "told"),
    [
        ((), (5, 3), "", (4, 4), True),
        ((), (5, 3), "raises as well", (4, 4), False),
        ((), (5, 4), "", None, False),  # No even shards hold 9 examples.
        ((), (4, 4), "", None, False),
        ((5, 3), (5, 3), "", None, False),  # These were asked for.
    ],
)
def test_what_is_raised_of_uneven_shards_alone_is_told_with_even_ones(
    tmp_path: Path,
    split: tuple[int, ...],
    shards: tuple[int, ...],
    message: str,
    wanted: tuple[int, ...] | None,
    told: bool,
) -> None:
    item = plan(workload="", cluster="mirrored:2", split=split)
    reference = Trace(name="", replicas=1, shards=shards, variables=(), values={})
    write_trace(reference, tmp_path, "reference-bounded")
    asked = []

    def observe_again(other: Planned) -> Observation:
        asked.append(other)
        return Observation(failure=fail(message) if message else None)

    [run] = judge(
        item,
        fail(phase="loss"),
        observe_again=observe_again,
        errand=make_errand(tmp_path),
        tiers=("bounded",),
    )
    assert run.status is Status.FAIL
    even = replace(item, scenario=replace(item.scenario, split=wanted or ()))
    assert asked == ([even] if wanted else [])
    assert ("'split=(4, 4)'" in run.findings[0].explanation) == told
