"""Faults that users inject: their text, what is refused, and where they are kept."""

from __future__ import annotations

import math
import signal
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import distbench
from distbench.cluster import ClusterSpec, Task
from distbench.errors import BadInputError
from distbench.fault import Fault
from distbench.launch.deadline import Deadline
from distbench.observe.errand import Errand
from distbench.observe.injuries import list_injuries, tell_injuries
from distbench.options import CheckOptions
from distbench.scenario import Scenario, scenario_from_json, scenario_to_json
from distbench.target import TargetRef

TEXTS = (
    "kill:worker:1@2",
    "kill:chief:0@0",
    "restart:ps:0@3",
    "stop:worker:1@2",
    "stop:worker:1@2..4",
    "delay=0.5:ps:0@3",
    "drop:replica:1@2",
    "nan:replica:0@1",
    "scale=-2.5:replica:1@2",
    "flip=30:replica:0@1",
)


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_read_back_as_it_is_written(text: str) -> None:
    assert str(Fault.parse(text)) == text


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (Fault.kill(1, 2), "kill:worker:1@2"),
        (Fault.kill(rank=0, step=3, role="ps", restart=True), "restart:ps:0@3"),
        (Fault.stop(1, 2, until=4), "stop:worker:1@2..4"),
        (Fault.delay(0, 3, 0.5, role="ps"), "delay=0.5:ps:0@3"),
        (Fault.drop(1, 2), "drop:replica:1@2"),
        (Fault.corrupt(0, 1), "nan:replica:0@1"),
        (Fault.corrupt(1, 2, factor=8), "scale=8:replica:1@2"),
        (Fault.corrupt(0, 1, bit=0), "flip=0:replica:0@1"),
        (Fault.corrupt(1, 2, factor=np.float64(3.5)), "scale=3.5:replica:1@2"),
        (Fault.drop(np.int64(1), np.int32(2)), "drop:replica:1@2"),
    ],
    ids=str,
)
def test_each_kind_has_a_function_that_makes_it(fault: Fault, text: str) -> None:
    assert fault == Fault.parse(text)
    assert str(fault) == text


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("kil:worker1@2", "kill:worker:1@2"),
        ("kill:worker:1", "kill:worker:1@1"),
        ("delay:worker:3@4", "delay=0.5:worker:3@4"),
        ("drop:worker:0@1", "drop:replica:0@1"),
        ("NaN:replica:0@7", "nan:replica:0@7"),
        ("flip:replica:0@7", "flip=1:replica:0@7"),
        ("stop:worker:0@1..", "stop:worker:0@1"),
        ("kill=3:worker:0@1", "kill:"),
    ],
)
def test_another_text_is_refused_with_the_grammar_and_the_nearest_form(
    text: str, nearest: str
) -> None:
    with pytest.raises(BadInputError, match="Expected kill:TASK@STEP") as refused:
        Fault.parse(text)
    assert f"Did you mean '{nearest}" in str(refused.value)


@pytest.mark.parametrize("text", ["", "foo", "worker:1@1", "3"])
def test_where_no_kind_is_near_nothing_is_suggested(text: str) -> None:
    with pytest.raises(BadInputError, match=r"numbers begin with 0\.$"):
        Fault.parse(text)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("flip=64:replica:0@1", "bits are numbered from 0 to 63"),
        ("flip=1.5:replica:0@1", "bits are numbered"),
        ("scale=1:replica:0@1", "other than 1"),
        ("delay=0:worker:0@1", "positive number of seconds"),
        ("stop:worker:0@3..3", "a later step"),
    ],
)
def test_a_number_that_cannot_be_is_refused(text: str, match: str) -> None:
    with pytest.raises(BadInputError, match=match):
        Fault.parse(text)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"kind": "flip", "amount": math.inf}, "bits are numbered"),
        ({"kind": "flip", "amount": math.nan}, "bits are numbered"),
        ({"kind": "scale", "amount": "much"}, "Expected kill:TASK@STEP"),
        ({"kind": "nan", "rank": 0.5}, "Expected kill:TASK@STEP"),
    ],
    ids=str,
)
def test_what_is_no_number_is_refused(given: dict[str, Any], match: str) -> None:
    with pytest.raises(BadInputError, match=match):
        Fault(**{"role": "replica", "rank": 0, "step": 1, **given})


def test_a_number_of_too_many_digits_is_refused() -> None:
    with pytest.raises(BadInputError, match="Expected kill:TASK@STEP"):
        Fault.parse(f"kill:worker:{'1' * 5000}@1")


def test_a_gradient_is_corrupted_in_one_way() -> None:
    with pytest.raises(BadInputError, match="Received: both"):
        Fault.corrupt(0, 1, factor=2, bit=3)


def make_scenario(fault: str, **fields: Any) -> Scenario:
    return Scenario(**{"target": "a:b", "faults": (fault,), **fields})


@pytest.mark.parametrize(
    ("fault", "fields", "match"),
    [
        ("kill:worker:2@1", {}, "has no worker:2. Expected one of worker:0, worker:1"),
        ("kill:ps:0@1", {}, "has no ps:0"),
        ("drop:replica:2@1", {}, "Expected one of replica:0 to replica:1"),
        ("kill:worker:1@3", {}, "needs step 3, and there are steps 0 to 2"),
        ("restart:worker:1@1", {}, "no task can come back"),
        ("stop:worker:1@1..2", {}, "no task can be waited past"),
        ("restart:chief:0@1", {"cluster": "ps:2+1"}, "no task can come back"),
        (
            "nan:replica:0@1",
            {"cluster": "ps:2+1", "in_flight": 4},
            "Expected one step at a time",
        ),
    ],
    ids=["worker", "server", "replica", "step", "back", "past", "chief", "flight"],
)
def test_a_fault_that_its_cluster_cannot_have_is_refused(
    fault: str, fields: dict[str, Any], match: str
) -> None:
    with pytest.raises(BadInputError, match=match):
        make_scenario(fault, **fields)
    options = {name: value for name, value in fields.items() if name != "cluster"}
    clusters = (fields.get("cluster", "mwms:2"),)
    with pytest.raises(BadInputError, match=match):
        CheckOptions(clusters=clusters, faults=(fault,), **options)


@pytest.mark.parametrize(
    ("fault", "fields"),
    [
        ("kill:worker:3@2", {"cluster": "mwms:all"}),
        ("drop:replica:3@2", {"cluster": "mirrored:all"}),
        ("kill:worker:1@11", {"cluster": "ps:2+1", "in_flight": 4}),
        ("stop:ps:0@1..2", {"cluster": "ps:2+1"}),
    ],
    ids=["open-workers", "open-replicas", "in-flight", "until"],
)
def test_a_fault_that_its_cluster_may_have_is_taken(
    fault: str, fields: dict[str, Any]
) -> None:
    assert make_scenario(fault, **fields).injected == (Fault.parse(fault),)


def test_a_scenario_is_known_by_its_faults_and_keeps_them_in_json() -> None:
    plain = Scenario(target="a:b")
    scenario = replace(plain, faults=("kill:worker:1@2", "drop:replica:0@1"))
    assert scenario.id == f"{plain.id}-with-kill:worker:1@2-drop:replica:0@1"
    assert scenario_from_json(scenario_to_json(scenario)) == scenario


def test_a_fault_of_a_task_is_an_injury_at_its_step(tmp_path: Any) -> None:
    launch: Any = SimpleNamespace(injury=None)
    scenario = make_scenario("delay=0.5:worker:1@2")
    (injury,) = list_injuries(scenario, launch)
    assert (injury.number, injury.step, injury.for_s) == (signal.SIGSTOP, 2, 0.5)
    assert injury.task == Task(role="worker", index=1)
    assert injury.name == "fault delay=0.5:worker:1@2"
    target = TargetRef(kind="file", path="a.py", attribute="b")
    spec = ClusterSpec.parse("mwms:2@cpu")
    launch.directory = SimpleNamespace(make_folder=lambda name: tmp_path / name)
    launch.give_time = Deadline
    errand = Errand.begin(target, scenario, spec, launch)
    assert errand.make_payload()["waits"] == [2]


def test_a_fault_of_a_replica_is_told_and_hurts_no_task() -> None:
    launch: Any = type("Launch", (), {"injury": None})
    scenario = make_scenario("scale=4:replica:1@2")
    assert list_injuries(scenario, launch) == ()
    told = "replica 1 got its gradients times 4 in step 2"
    assert tell_injuries(scenario, "") == told
    assert tell_injuries(scenario, "worker-0 went") == f"worker-0 went, {told}"


def test_the_interface_has_it() -> None:
    assert distbench.Fault is Fault
