"""What is told of a run that ended before anything was compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from distbench.checking.controls import Controls
from distbench.checking.failing import Failing
from distbench.checking.origin import Control
from distbench.checking.plan import Planned
from distbench.cluster import ClusterSpec, Task
from distbench.launch.failure import TaskFailedError
from distbench.observe import Observation
from distbench.observe.errand import Errand
from distbench.scenario import Scenario
from distbench.scenario.choices import PIPELINE
from distbench.trace import Trace, TraceKey
from distbench.trace.files import write_trace
from distbench.verdict import Run, Status


def _observe_nothing(item: Planned) -> Observation | tuple[Run, ...]:
    raise AssertionError(f"{item.scenario.id} is not to run again.")


def test_a_broken_cluster_is_told_for_the_tiers_that_the_data_can_have() -> None:
    """As a failure of the subject is: 10 examples prove nothing to the exact tier."""
    scenario = Scenario(target="m:f", workload="linear", cluster="mirrored:2")
    item = Planned(
        scenario=scenario, spec=ClusterSpec.parse("mirrored:2"), optional=False
    )
    failure = TaskFailedError(
        "worker-0 died", task=Task(role="worker", index=0), kind="died"
    )
    controls = cast(Controls, None)  # Nobody asks whose fault it is.
    failing = Failing(("exact", "bounded"), controls, _observe_nothing)
    seen = Observation(failure=failure, tiers=("bounded",))
    runs = list(failing.judge(item, seen, failure))
    assert [(run.tier, run.status) for run in runs] == [("bounded", Status.ERROR)]


def test_a_failure_of_a_train_program_is_told_once() -> None:
    """It came for the exact tier as well, which no data of a user's can have."""
    scenario = Scenario(target="m:f", workload=PIPELINE, cluster="mirrored:2")
    item = Planned(
        scenario=scenario, spec=ClusterSpec.parse("mirrored:2"), optional=False
    )
    failure = TaskFailedError(
        "worker-0 died", task=Task(role="worker", index=0), kind="died"
    )
    failing = Failing(("exact", "bounded"), cast(Controls, None), _observe_nothing)
    runs = failing.judge(item, Observation(failure=failure), failure)
    assert [run.tier for run in runs] == ["bounded"]


def test_who_raised_is_named_with_the_cluster_that_it_is_of() -> None:
    """A scenario that restores has another cluster, which trains before."""
    scenario = Scenario(target="m:f", cluster="mwms:2", restore_from="mirrored:2")
    spec = ClusterSpec.parse("mwms:2@cpu")
    item = Planned(scenario=scenario, spec=spec, optional=False)
    task = Task(role="worker", index=0)
    for name, words in (("mirrored:2@cpu", "'mirrored:2@cpu'"), ("", f"'{spec}'")):
        failure = TaskFailedError(
            "worker-0 raised", task=task, kind="subject", cluster=name, phase="save"
        )
        controls = SimpleNamespace(run=lambda *_: None)
        failing = Failing(("bounded",), cast(Controls, controls), _observe_nothing)
        [run] = failing.judge(item, Observation(failure=failure), failure)
        assert f"task worker-0 of {words} raised" in run.findings[0].explanation


@pytest.mark.parametrize(("where", "status"), [("mwms:2", "refused"), ("", "fail")])
def test_what_a_cluster_that_trains_before_is_refused_is_refused(
    where: str, status: str
) -> None:
    """Its control is a stock optimizer on that same cluster."""
    scenario = Scenario(target="m:f", cluster="ps:2+1", restore_from="mwms:2")
    spec = ClusterSpec.parse("ps:2+1@cpu")
    item = Planned(scenario=scenario, spec=spec, optional=False)
    failure = TaskFailedError(
        "worker-0 raised",
        task=Task(role="worker", index=0),
        kind="subject",
        cluster="mwms:2@cpu",
        exception="InternalError",
        message="Multiple CPU devices",
        traceback='  File "/site-packages/tensorflow/python/eager/a.py", line 1, in f\n'
        "    raise InternalError(message)\n",
    )

    def run(scenario: Scenario, spec: ClusterSpec, _: object) -> Control | None:
        is_it = scenario.cluster == where and not scenario.restore_from
        return Control(failure=failure) if is_it and str(spec) == "mwms:2@cpu" else None

    controls = cast(Controls, SimpleNamespace(run=run))
    failing = Failing(("bounded",), controls, _observe_nothing)
    [run_] = failing.judge(item, Observation(failure=failure), failure)
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
    scenario = Scenario(target="m:f", cluster="mwms:2")
    spec = ClusterSpec.parse("mwms:2@cpu")
    item = Planned(scenario=scenario, spec=spec, optional=False)
    task = Task(role="worker", index=0)
    controls = cast(Controls, SimpleNamespace(run=lambda *_: None))
    failure = TaskFailedError(message, task=task, kind="subject", message=message)
    failing = Failing(("bounded",), controls, _observe_nothing)
    [run] = failing.judge(item, Observation(failure=failure), failure)
    assert (words in run.findings[0].explanation) == meant


def test_workers_that_never_meet_are_told_with_the_steps_that_they_finished(
    tmp_path: Path,
) -> None:
    """Wherever the failure was: what was under way is no tier then."""
    spec = ClusterSpec.parse("mwms:2@cpu")
    item = Planned(
        scenario=Scenario(target="m:f", cluster="mwms:2"), spec=spec, optional=False
    )
    key = TraceKey(step=1, phase="loss", variable="", replica=0)
    part = Trace(
        name="", replicas=2, shards=(1, 1), variables=(), values={key: np.float32(1.0)}
    )
    for task in spec.tasks:
        write_trace(part, tmp_path, f"observed-bounded-{task}")
    wait = {"words": "collective 7", "mismatch": True, "number": 7, "shape": ""}
    failure = TaskFailedError(
        "late",
        task=spec.tasks[0],
        kind="timeout",
        phase="before_step",
        collectives={spec.tasks[0]: {**wait, "shapes": [""], "node": "Reduce"}},
    )
    controls = cast(Controls, SimpleNamespace(run=lambda *_, **__: None))
    failing = Failing(("bounded",), controls, _observe_nothing)
    errand = cast(Errand, SimpleNamespace(folder=tmp_path, reference=tmp_path))
    seen = Observation(failure=failure, errand=errand, tiers=("bounded",))
    [run] = failing.judge(item, seen, failure)
    assert run.findings[0].step == 2


@pytest.mark.parametrize("jit", [True, None])
def test_what_is_raised_under_xla_is_told_with_the_option_that_leaves_it_out(
    jit: bool | None,
) -> None:
    scenario = Scenario(target="m:f", cluster="mwms:2", jit=jit)
    spec = ClusterSpec.parse("mwms:2@cpu")
    item = Planned(scenario=scenario, spec=spec, optional=False)
    task = Task(role="worker", index=0)
    failure = TaskFailedError("it raised", task=task, kind="subject")
    controls = cast(Controls, SimpleNamespace(run=lambda *_: None))
    failing = Failing(("bounded",), controls, _observe_nothing)
    [run] = failing.judge(item, Observation(failure=failure), failure)
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
    scenario = Scenario(target="m:f", workload="", cluster="mirrored:2", split=split)
    spec = ClusterSpec.parse("mirrored:2@cpu")
    item = Planned(scenario=scenario, spec=spec, optional=False)
    reference = Trace(name="", replicas=1, shards=shards, variables=(), values={})
    write_trace(reference, tmp_path, "reference-bounded")
    task = Task(role="worker", index=0)
    failure = TaskFailedError("it raised", task=task, kind="subject", phase="loss")
    asked = []

    def observe_again(other: Planned) -> Observation:
        asked.append(other)
        again = TaskFailedError(message, task=task, kind="subject")
        return Observation(failure=again if message else None)

    controls = cast(Controls, SimpleNamespace(run=lambda *_: None))
    failing = Failing(("bounded",), controls, observe_again)
    errand = cast(Errand, SimpleNamespace(folder=tmp_path, reference=tmp_path))
    seen = Observation(failure=failure, errand=errand, tiers=("bounded",))
    [run] = failing.judge(item, seen, failure)
    assert run.status is Status.FAIL
    even = [replace(item, scenario=replace(scenario, split=wanted))] if wanted else []
    assert asked == even
    assert ("'split=(4, 4)'" in run.findings[0].explanation) == told
