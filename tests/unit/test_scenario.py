"""Scenarios and options: what is refused, ids, and the way through JSON."""

from __future__ import annotations

import dataclasses
import re

import pytest
from input_checks import check_scenario_json

from distbench.errors import BadInputError
from distbench.options import CheckOptions
from distbench.partitioner import parse_partitioner
from distbench.scenario import Scenario, scenario_from_json, scenario_to_json
from distbench.scenario.choices import PATHS, WORKLOADS


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"workload": "mlp", "target": "a.b:make_adam", "path": "aggregator"},
            "mlp-adam-mwms:2-aggregator",
        ),
        ({"target": "dir/train.py:Program"}, "Program-mwms:2"),
        ({"target": "t.py:P", "path": "user"}, "P-mwms:2-user"),
        (
            {"target": "t.py:P", "restore_from": "one", "restore_after": 1},
            "P-mwms:2-from-one-after-1",
        ),
        ({"target": "test_x.<locals>.<lambda>"}, "test_x._locals_._lambda-mwms:2"),
    ],
    ids=["optimizer", "program", "program-path", "restored", "lambda"],
)
def test_the_id_names_what_differs(changes: dict, expected: str) -> None:
    assert Scenario(**changes).id == expected


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario(target="t"),
        Scenario(
            target="a/b é\x00.py:\ud800",
            workload=next(iter(WORKLOADS)),
            cluster="ps:2+1",
            path=list(PATHS)[-1],
            steps=99,
            dtype="bfloat16",
            seed=2**31 - 1,
            keras="legacy",
            jit=False,
            timeout_s=0.1,
        ),
    ],
    ids=["defaults", "all-set"],
)
def test_a_scenario_comes_back_from_json(scenario: Scenario) -> None:
    check_scenario_json(scenario)


def test_a_split_comes_back_as_a_tuple() -> None:
    scenario = Scenario(target="t", split=(6, 2))
    assert scenario_from_json(scenario_to_json(scenario)).shards == (6, 2)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "x"}', "null"])
def test_other_text_is_no_scenario(text: str) -> None:
    with pytest.raises(BadInputError, match="not a scenario"):
        scenario_from_json(text)


@pytest.mark.parametrize(
    ("cluster", "shards"),
    [("one", (4,)), ("mwms:2", (5, 3)), ("ps:2+1", (4,)), ("mwms:3", (7, 5, 4))],
    ids=str,
)
def test_the_default_batch_is_a_power_of_two_split_unevenly(
    cluster: str, shards: tuple[int, ...]
) -> None:
    scenario = Scenario(target="t", cluster=cluster)
    assert sorted(scenario.shards) == sorted(shards)
    assert scenario.global_batch.bit_count() == 1


def test_an_open_cluster_has_no_shards_yet() -> None:
    with pytest.raises(BadInputError, match="Resolve the cluster spec first"):
        _ = Scenario(target="t", cluster="mirrored:all").shards


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": ""}, "needs a target"),
        ({"workload": "mpl"}, "Did you mean 'mlp'"),
        ({"path": "agregator"}, "Did you mean 'aggregator'"),
        ({"cluster": "mwm:2"}, "Did you mean 'mwms:2'"),
        ({"steps": 0}, "steps must be 1 or more. Received: 0"),
        ({"seed": -1}, "seed must be"),
        ({"timeout_s": 0.0}, "timeout_s must be"),
        ({"timeout_s": float("nan")}, "timeout_s must be"),
        ({"dtype": "float31"}, "Did you mean 'float32'"),
        ({"keras": "2"}, "keras '2' is not known"),
        ({"restore_after": -1}, "restore_after must be 0 or more. Received: -1"),
        ({"restore_after": 1}, "nothing to restore after 1 step."),
        ({"restore_from": "one", "restore_after": 3}, "would train 3 steps before"),
        ({"split": (1, 2, 3)}, "3 shares, 2 replicas"),
        ({"split": (8,)}, "1 share, 2 replicas"),
        ({"split": (8, 1), "examples": 1}, "(8, 1) for 1 example."),
        ({"split": (9, -1)}, "must not be negative"),
        ({"split": (0, 0)}, "one must be positive"),
        ({"split": (5, 3), "examples": 9}, "add up"),
        ({"examples": 1}, "1 example, 2 replicas"),
    ],
    ids=str,
)
def test_what_cannot_run_is_refused(changes: dict, message: str) -> None:
    with pytest.raises(BadInputError, match=re.escape(message)):
        Scenario(**{"target": "t", **changes})


def test_what_trains_before_has_no_faults() -> None:
    """They befall the cluster that restores: the other one may lack who suffers."""
    scenario = Scenario(target="t", restore_from="one", faults=("nan:replica:1@1",))
    assert scenario.trained_before.faults == ()


def test_three_steps_before_a_restore_are_not_those_of_more_workers() -> None:
    CheckOptions(clusters=("ps:3+1",), restore_from="one", restore_after=3)


def test_an_empty_shard_is_a_scenario_of_its_own() -> None:
    assert Scenario(target="t", split=(8, 0)).shards == (8, 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clusters": ()}, "clusters must name at least one"),
        ({"clusters": ("mwms:2", "x")}, "Cluster spec 'x'"),
        ({"paths": ("aggregator-men",)}, "Did you mean 'aggregator-mean'"),
        ({"tiers": ("exakt",)}, "Did you mean 'exact'"),
        ({"workloads": ("linnear",)}, "Did you mean 'linear'"),
        ({"expect": ("mean-of-mean",)}, "Did you mean 'mean-of-means'"),
        ({"steps": 0}, "steps must be"),
        ({"restore_after": 1}, "nothing to restore after 1 step."),
        (
            {"restore_after": 4, "restore_from": "one", "clusters": ("ps:3+1",)},
            "would train 4 steps before",
        ),
        ({"require_gpus": -1}, "require_gpus must not be negative"),
        ({"engine": "slurn"}, "Did you mean 'slurm'"),
        ({"start": "frok"}, "Did you mean 'fork'"),
    ],
    ids=str,
)
def test_bad_options_are_refused_with_the_nearest_name(
    changes: dict, message: str
) -> None:
    with pytest.raises(BadInputError, match=re.escape(message)):
        CheckOptions(**changes)


def test_default_options_are_valid_and_train_an_odd_number_of_steps() -> None:
    assert CheckOptions().first_steps % 2 == 1
    assert dataclasses.replace(CheckOptions(), expect=("nonfinite",))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fixed:2", ("fixed", (2,))),
        ("min:256:4", ("min", (256, 4))),
        ("max:8", ("max", (8,))),
        ("max:8:2", ("max", (8, 2))),
    ],
)
def test_a_partitioner_is_a_kind_and_its_numbers(text: str, expected: tuple) -> None:
    assert parse_partitioner(text) == expected
    scenario = Scenario(target="a.b:P", cluster="ps:1+2", partitioner=text)
    assert scenario.id == f"P-ps:1+2-{text}"
    assert scenario_from_json(scenario_to_json(scenario)) == scenario


def test_a_partitioner_of_what_is_restored_needs_a_cluster_that_saves_it() -> None:
    saved = {"restore_from": "ps:1+2", "restore_partitioner": "fixed:3"}
    scenario = Scenario(target="a.b:P", cluster="ps:1+2", **saved)
    assert scenario.id == "P-ps:1+2-from-ps:1+2-fixed:3-to"
    assert scenario_from_json(scenario_to_json(scenario)) == scenario
    with pytest.raises(BadInputError, match="needs a cluster that saves it"):
        Scenario(target="a.b:P", cluster="ps:1+2", restore_partitioner="fixed:3")
    with pytest.raises(BadInputError, match="no parameter servers"):
        CheckOptions(
            clusters=("ps:1+2",), restore_from="one", restore_partitioner="fixed:3"
        )


@pytest.mark.parametrize(
    "text", ["fixed", "fixed:0", "fixed:2:2", "min:8", "least:3", "max:-1", ":"]
)
def test_no_partitioner_is_refused_with_the_grammar(text: str) -> None:
    with pytest.raises(BadInputError, match="fixed:SHARDS"):
        Scenario(target="t", cluster="ps:1+2", partitioner=text)
    with pytest.raises(BadInputError, match="fixed:SHARDS"):
        CheckOptions(clusters=("ps:1+2",), partitioner=text)


def test_shards_need_parameter_servers() -> None:
    with pytest.raises(BadInputError, match="no parameter servers"):
        Scenario(target="t", cluster="mwms:2", partitioner="fixed:2")
