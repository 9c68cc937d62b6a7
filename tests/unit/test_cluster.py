"""Cluster specs: the grammar, what is open in it, and the tasks that follow."""

from __future__ import annotations

import re

import pytest
from input_checks import check_resolved, check_spec_text

from distbench.cluster import ALL, ClusterSpec, Task, write_grammar
from distbench.errors import BadInputError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one", ClusterSpec(kind="one")),
        ("mirrored:4", ClusterSpec(kind="mirrored", replicas_per_worker=4)),
        (
            "mirrored:all@gpu",
            ClusterSpec(kind="mirrored", replicas_per_worker=ALL, device="gpu"),
        ),
        (
            "central:2@cpu",
            ClusterSpec(kind="central", replicas_per_worker=2, device="cpu"),
        ),
        ("mwms:3", ClusterSpec(kind="mwms", workers=3)),
        ("mwms:2x4", ClusterSpec(kind="mwms", workers=2, replicas_per_worker=4)),
        ("ps:2+1", ClusterSpec(kind="ps", workers=2, parameter_servers=1)),
    ],
    ids=lambda value: str(value),
)
def test_a_valid_spec_is_read_and_printed_back(
    text: str, expected: ClusterSpec
) -> None:
    assert ClusterSpec.parse(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize(
    "text",
    [
        "mwms",
        "mwms:2x",
        "ps:2",
        "one:1",
        "mwms:2@tpu",
        "mwms:2@",
        "mwms: 2",
        "mirrored:1.5",
    ],
)
def test_anything_else_is_refused_with_the_grammar_and_the_nearest(text: str) -> None:
    with pytest.raises(BadInputError, match=r"mwms:WxR.*Did you mean '\S+'"):
        ClusterSpec.parse(text)


@pytest.mark.parametrize(
    ("text", "number", "nearest"),
    [
        ("mirrored:100000", "100000", "mirrored:9999"),
        ("mwms:0", "0", "mwms:1"),
        ("mwms:99999", "99999", "mwms:9999"),
        ("mwms:2x0@gpu", "0", "mwms:2x1@gpu"),
        ("mirrored:-1", "-1", "mirrored:1"),
        ("ps:0+1", "0", "ps:1+1"),
        ("ps:all+00", "00", "ps:all+1"),
        pytest.param(f"mwms:{'9' * 5000}", "9" * 5000, "mwms:9999", id="digits"),
    ],
)
def test_a_number_that_cannot_be_is_told_by_itself(
    text: str, number: str, nearest: str
) -> None:
    expected = f"a number must be from 1 to 9999, or 'all'. Received: {number}."
    with pytest.raises(BadInputError, match=re.escape(expected)) as refused:
        ClusterSpec.parse(text)
    assert str(refused.value).endswith(f"{write_grammar()}. Did you mean '{nearest}'?")
    ClusterSpec.parse(nearest)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("mwms:2x3@cpu", ["mwms:6@cpu", "mwms:2x3@gpu"]),
        ("mwms:allx2@cpu", ["mwms:all@cpu", "mwms:allx2@gpu"]),
        ("mwms:9999x2@cpu", ["mwms:9999x2@gpu"]),
    ],
)
def test_what_cpus_cannot_do_is_told_with_what_can_be_typed(
    text: str, meant: list[str]
) -> None:
    with pytest.raises(BadInputError, match="need GPUs") as refused:
        ClusterSpec.parse(text)
    used = str(refused.value).partition(" Use ")[2]
    assert used == " or ".join(f"'{spec}'" for spec in meant) + "."
    assert [str(ClusterSpec.parse(spec)) for spec in meant] == meant


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("mwms:2X2@GPU", "mwms:2x2@gpu"),
        ("mwms:2X2@cpu", "mwms:2x2@gpu"),
        ("mwm:3", "mwms:3"),
        ("mwms:x", "mwms:2"),
        ("mwms:2x", "mwms:2x1"),
        ("MWMS:16", "mwms:16"),
        ("ps:3", "ps:3+1"),
        ("ps:3,2@cpu", "ps:3+2@cpu"),
        ("mwms:2*4@gpus", "mwms:2x4@gpu"),
        ("mirrored", "mirrored:2"),
        ("one:1", "one"),
        ("mwms:4@gpus", "mwms:4@gpu"),
        ("mirored:all@gpus", "mirrored:all@gpu"),
        ("mwms:2,", "mwms:2"),
    ],
)
def test_the_nearest_spec_has_the_numbers_that_were_given(
    text: str, nearest: str
) -> None:
    with pytest.raises(BadInputError, match=re.escape(f"Did you mean '{nearest}'?")):
        ClusterSpec.parse(text)


@pytest.mark.parametrize("text", ["", "two", "foo:2", "2", ":3", "two:1+1@gpu"])
def test_where_nothing_is_near_nothing_is_suggested(text: str) -> None:
    with pytest.raises(BadInputError, match=r"mwms:WxR.* may be 'all'\.$"):
        ClusterSpec.parse(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("mirrored:2, ps:2+1@cpu", "-c mirrored:2 -c ps:2+1@cpu"),
        ("a,b", "-c mirrored:2 -c mwms:2"),
    ],
)
def test_several_specs_in_one_text_are_to_be_given_by_themselves(
    text: str, shown: str
) -> None:
    words = f"Give each by itself: {shown}."
    with pytest.raises(BadInputError, match=re.escape(words)):
        ClusterSpec.parse(text)


def test_several_replicas_of_a_cpu_worker_are_bad_usage() -> None:
    with pytest.raises(BadInputError, match=r"mwms:4@cpu.*mwms:2x2@gpu"):
        ClusterSpec.parse("mwms:2x2@cpu")


@pytest.mark.parametrize(
    "text",
    ["", "mwms:2", "ps:2+1@cpu", "mwms:02", "one:", "mwms:٣", "mirrored:2x2", "\x00\n"],
)
def test_any_text_is_a_spec_that_prints_back_or_bad_input(text: str) -> None:
    check_spec_text(text)


@pytest.mark.parametrize(
    ("text", "gpus", "expected"),
    [
        ("mirrored:2", 0, "mirrored:2@cpu"),
        ("mirrored:2", 1, "mirrored:2@cpu"),
        ("mirrored:2", 2, "mirrored:2@gpu"),
        ("mirrored:all", 0, "mirrored:6@cpu"),
        ("mirrored:all", 8, "mirrored:8@gpu"),
        ("mwms:all@gpu", 4, "mwms:4@gpu"),
        ("mwms:2xall", 4, "mwms:2x2@gpu"),
        ("mwms:2xall", 0, "mwms:2@cpu"),
        ("mwms:2x2", 0, "mwms:2x2@gpu"),
        ("mwms:allx2@gpu", 4, "mwms:2x2@gpu"),
        ("ps:2+1", 8, "ps:2+1@cpu"),
        ("ps:all+all", 0, "ps:6+1@cpu"),
    ],
    ids=lambda value: str(value),
)
def test_what_is_open_is_taken_from_the_machine(
    text: str, gpus: int, expected: str
) -> None:
    assert str(ClusterSpec.parse(text).resolve(gpus=gpus, cpus=6)) == expected


def test_a_cluster_that_lacks_gpus_says_how_many_it_needs() -> None:
    resolved = ClusterSpec.parse("mwms:2x2").resolve(gpus=1, cpus=2)
    assert resolved.gpus_needed == 4


@pytest.mark.parametrize(
    ("text", "gpus", "cpus"),
    [
        ("one", 0, 1),
        ("mirrored:all", 0, 1),
        ("mirrored:all@gpu", 0, 4),
        ("central:3@cpu", 2, 9),
        ("mwms:allxall", 9, 2),
        ("mwms:allx2@gpu", 1, 1),
        ("ps:all+2", 0, 1),
        ("ps:3+all", 3, 1),
    ],
)
def test_a_resolved_spec_is_closed(text: str, gpus: int, cpus: int) -> None:
    check_resolved(text, gpus, cpus)


def test_parameter_servers_come_with_a_chief() -> None:
    spec = ClusterSpec.parse("ps:2+1")
    assert [str(task) for task in spec.tasks] == [
        "chief-0",
        "worker-0",
        "worker-1",
        "ps-0",
    ]
    assert spec.replicas == 1


def test_replicas_of_one_process_are_one_task() -> None:
    spec = ClusterSpec.parse("mirrored:4")
    assert spec.tasks == (Task(role="worker", index=0),)
    assert spec.replicas == 4
