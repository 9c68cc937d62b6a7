"""The scenarios that options mean, for each kind of subject."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from distbench.checking.plan import (
    DEFAULT_WORKLOADS,
    Planned,
    check_only,
    list_possible,
    name_cluster,
    plan_scenarios,
    tell_ignored,
)
from distbench.errors import BadInputError
from distbench.machine import Machine
from distbench.options import CheckOptions
from distbench.scenario import Scenario
from distbench.scenario.choices import (
    EXACT_WORKLOADS,
    MODEL,
    PIPELINE,
    PROGRAM,
    WORKLOADS,
)

MACHINE = Machine(cores=2, memory_bytes=2**34, gpus=0)


def plan(kind: str, **options: Any) -> tuple[Planned, ...]:
    return plan_scenarios("a.b:c", kind, CheckOptions(**options), MACHINE)


def test_an_optimizer_meets_every_workload_cluster_and_path() -> None:
    clusters, paths = ("one", "mirrored:3"), ("default", "user")
    found = plan(
        "optimizer", clusters=clusters, paths=paths, workloads=("mlp", "linear")
    )
    assert [
        (item.scenario.workload, item.scenario.cluster, item.scenario.path)
        for item in found
    ] == [(w, c, p) for w in ("mlp", "linear") for p in paths for c in clusters]
    assert not any(item.optional for item in found)


@pytest.mark.parametrize(
    ("cluster", "options", "steps"),
    [
        ("ps:1+1", {}, 3),
        ("ps:2+1", {}, 3),
        ("ps:4+2", {}, 5),
        ("mwms:4", {}, 3),
        ("ps:4+2", {"steps": 2}, 2),
        ("ps:4+2", {"in_flight": 4}, 3),
    ],
)
def test_every_worker_takes_a_step_and_one_comes_after_the_last(
    cluster: str, options: dict[str, int], steps: int
) -> None:
    [item] = plan("program", clusters=(cluster,), **options)
    assert item.scenario.steps == steps


def test_a_workload_that_nobody_asked_for_may_be_left_out() -> None:
    found = {i.scenario.workload: i.optional for i in plan("optimizer")}
    assert found == dict.fromkeys(DEFAULT_WORKLOADS, False) | {"embedding": True}
    assert not plan("optimizer", workloads=("embedding",))[0].optional


@pytest.mark.parametrize(
    ("kind", "workload"),
    [("program", PROGRAM), ("pipeline", PIPELINE), ("model", MODEL)],
)
def test_what_brings_its_data_has_no_workload_of_the_bench(
    kind: str, workload: str
) -> None:
    found = plan(kind, clusters=("mwms:2",), workloads=("mlp",), paths=("user",))
    assert [(i.scenario.workload, i.scenario.path) for i in found] == [
        (workload, "default")
    ]


@pytest.mark.parametrize(
    ("kind", "clusters", "options", "shared"),
    [
        ("optimizer", ("mirrored:2", "mwms:2"), {}, True),
        ("optimizer", ("mirrored:2", "mirrored:3"), {}, False),
        ("optimizer", ("mirrored:2", "mwms:2"), {"restore_from": "one"}, False),
        ("optimizer", ("ps:2+1", "ps:3+1"), {"in_flight": 4}, False),
        ("pipeline", ("mirrored:2", "mwms:2"), {}, False),
    ],
    ids=["cluster", "replicas", "restored", "in-flight", "pipeline"],
)
def test_what_differs_in_the_cluster_alone_has_one_reference(
    kind: str, clusters: tuple[str, ...], options: dict[str, Any], shared: bool
) -> None:
    found = plan(kind, clusters=clusters, **options)
    first, second = (
        next(item for item in found if item.scenario.cluster == cluster)
        for cluster in clusters
    )
    assert (first.reference == second.reference) is shared


def test_what_a_spec_leaves_open_is_what_the_machine_has() -> None:
    (item,) = plan(
        "program", clusters=("mirrored:all",), restore_from="mwms:2", restore_after=1
    )
    assert (str(item.spec), item.scenario.cluster) == ("mirrored:2@cpu", "mirrored:2")
    assert item.scenario.restore_from == "mwms:2@cpu"
    assert item.scenario.restore_after == 1


def test_specs_that_mean_the_same_cluster_are_run_once() -> None:
    clusters = ("mirrored:all", "mirrored:2@cpu", "mwms:2", "mirrored:2")
    found = plan("program", clusters=clusters)
    assert [(i.scenario.cluster, i.number) for i in found] == [
        ("mirrored:2", 0),
        ("mwms:2", 1),
    ]


def test_one_scenario_is_picked_by_its_id() -> None:
    wanted = plan("optimizer", clusters=("one", "mwms:2"))[3].scenario
    (item,) = plan("optimizer", clusters=("one", "mwms:2"), only=wanted.id)
    assert item.scenario == wanted


def test_an_id_of_no_scenario_is_refused_with_those_that_are() -> None:
    known = plan("program", clusters=("one",))[0].scenario.id
    with pytest.raises(BadInputError, match=f"'no-such'. Expected one of {known}"):
        plan("program", clusters=("one",), only="no-such")


def test_an_id_that_no_subject_has_is_refused_before_tasks_start() -> None:
    for kind in ("optimizer", "program", "model"):
        for item in plan(kind, clusters=("one",)):
            options = CheckOptions(clusters=("one",), only=item.scenario.id)
            check_only(item.scenario.target, options, MACHINE)
    known = re.escape(item.scenario.id)
    words = f"'no-such'. Expected one of linear-.*; of a program or a model .*{known}"
    with pytest.raises(BadInputError, match=words):
        check_only(item.scenario.target, replace(options, only="no-such"), MACHINE)


def test_a_split_is_for_clusters_of_so_many_replicas() -> None:
    (item,) = plan("program", clusters=("mwms:2",), split=(8, 0))
    assert item.scenario.shards == (8, 0)
    with pytest.raises(BadInputError, match=r"2 shares, 3 replicas"):
        plan("program", clusters=("mwms:2", "mirrored:3"), split=(5, 3))


def test_it_is_told_what_changes_nothing() -> None:
    options = CheckOptions(workloads=("mlp",), paths=("none",), dtype="float16")
    told = tell_ignored("a:b", "program", options)
    assert "paths='none', workloads='mlp', dtype='float16' would be" in told
    assert not tell_ignored("a:b", "optimizer", options)
    assert not tell_ignored("a:b", "program", CheckOptions())


def test_a_pipeline_has_no_split_of_the_bench() -> None:
    with pytest.raises(BadInputError, match=r"no split. Received: 5,3"):
        plan("pipeline", clusters=("mwms:2",), split=(5, 3))


@pytest.mark.parametrize(
    ("kind", "option"),
    [
        ("program", {"examples": 64}),
        ("pipeline", {"examples": 64}),
        ("model", {"examples": 64}),
        ("pipeline", {"loss_weight": 2.0}),
    ],
)
def test_what_brings_its_data_has_nothing_set_of_a_workload(
    kind: str, option: dict[str, Any]
) -> None:
    assert plan("optimizer", clusters=("mwms:2",), **option)
    (given,) = option
    with pytest.raises(BadInputError, match=f"brings its own data.*{given}="):
        plan(kind, clusters=("mwms:2",), **option)


@pytest.mark.parametrize("gpus", [0, 2])
def test_a_cluster_is_known_by_its_name_on_a_machine(gpus: int) -> None:
    machine = replace(MACHINE, gpus=gpus)
    clusters = ("mirrored:2", "mwms:all", "mwms:3@cpu", "mirrored:2@gpu", "ps:2+1")
    options = CheckOptions(clusters=clusters, workloads=("linear",))
    planned = plan_scenarios("a.b:c", "optimizer", options, machine)
    named = [name_cluster(cluster, machine) for cluster in clusters]
    assert [item.scenario.cluster for item in planned] == list(dict.fromkeys(named))
    assert named[0] == ("mirrored:2@gpu" if gpus else "mirrored:2")


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        ("mirrored:2", "mirrored:2@gpu"),
        ("mwms:all", "mwms:2@gpu"),
        ("mirrored:all@gpu", "mirrored:2@gpu"),
        ("mirrored:2@cpu", "mirrored:2"),
        ("mirrored:4", "mirrored:4"),
        ("ps:2+1", "ps:2+1"),
    ],
)
def test_with_required_gpus_an_open_cluster_does_not_fall_back_to_cpus(
    cluster: str, expected: str
) -> None:
    (planned,) = plan("program", clusters=(cluster,), require_gpus=2)
    assert planned.scenario.cluster == expected
    assert bool(MACHINE.find_lack(planned.spec)) == ("gpu" in expected)


def test_an_engine_has_the_gpus_that_it_was_asked_for() -> None:
    options = {"clusters": ("mwms:2",), "require_gpus": 2, "engine": "ray"}
    (planned,) = plan("program", **options)
    assert planned.scenario.cluster == "mwms:2"


@pytest.mark.parametrize(
    ("given", "tiers"),
    [
        ({"workload": "linear"}, ("exact", "bounded")),
        ({"workload": "embedding"}, ("bounded",)),
        ({"workload": PROGRAM}, ("bounded",)),
        ({"workload": PIPELINE}, ("bounded",)),
        ({"workload": PROGRAM, "in_flight": 2}, ("exact", "bounded")),
    ],
    ids=["exact", "rounds", "program", "pipeline", "in-flight"],
)
def test_the_tiers_that_a_scenario_may_have(
    given: dict[str, Any], tiers: tuple[str, ...]
) -> None:
    scenario = Scenario(target="a.b:c", cluster="ps:2+1", **given)
    assert list_possible(("exact", "bounded"), scenario) == tiers
    assert list_possible(("exact",), scenario) == ("exact",)


def test_every_workload_has_a_file_and_those_that_prove_sums_are_listed() -> None:
    folder = Path(__file__).parents[2] / "distbench" / "worker" / "workloads"
    assert {*WORKLOADS} <= {file.stem for file in folder.glob("*.py")}
    proving = {
        file.stem
        for file in folder.glob("*.py")
        if "def prove_exact" in file.read_text() and file.stem != "base"
    }
    assert proving == set(EXACT_WORKLOADS)


def test_gpus_and_cpus_have_references_of_their_own() -> None:
    """A model of Keras is compiled for the one and not for the other."""
    clusters = ("mirrored:2@cpu", "mwms:2@cpu", "mirrored:2@gpu", "mwms:2@gpu")
    options = CheckOptions(clusters=clusters)
    found = plan_scenarios("a.b:c", "program", options, replace(MACHINE, gpus=2))
    on_cpus, again, on_gpus, on_more = (item.reference for item in found)
    assert on_cpus == again
    assert on_gpus == on_more
    assert on_cpus != on_gpus
