"""A kind of cluster is what is true of it: a new one is an object, and no branch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from verdict_samples import make_finding, make_run, make_verdict

from distbench.cluster import KINDS, ClusterKind, ClusterSpec, Task
from distbench.errors import BadInputError
from distbench.launch.tf_config import count_ports
from distbench.options import CheckOptions, find_usual_steps
from distbench.partitioner import check_partitioner
from distbench.repro.clusters import write_cluster
from distbench.scenario.choices import check_in_flight
from distbench.shrink import shrink
from distbench.stop import check_stoppable
from distbench.verdict import Status

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "distbench"
TWIN = ClusterKind(
    name="twin",
    sizes=("R",),
    strategy="tf.distribute.TwinStrategy($devices)",
    divides_cpu=True,
    smaller=("twin:2",),
)
"""Nearly what `mirrored` is."""
FLEET = ClusterKind(
    name="fleet",
    sizes=("W",),
    scheduled=True,
    tf_config=True,
    variables_on_cpu=True,
    takes_gpus=False,
)
"""Workers that a chief has take steps, on variables of its own."""


@pytest.fixture(autouse=True)
def _made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (TWIN, FLEET):
        monkeypatch.setitem(KINDS, kind.name, kind)


@pytest.mark.parametrize(
    ("text", "gpus", "resolved", "tasks"),
    [
        ("twin:3", 0, "twin:3@cpu", ["worker-0"]),
        ("twin:3", 4, "twin:3@gpu", ["worker-0"]),
        ("twin:all", 0, "twin:6@cpu", ["worker-0"]),
        ("twin:all@gpu", 4, "twin:4@gpu", ["worker-0"]),
        ("fleet:2", 4, "fleet:2@cpu", ["chief-0", "worker-0", "worker-1"]),
        ("fleet:1@gpu", 4, "fleet:1@gpu", ["chief-0", "worker-0"]),
    ],
)
def test_a_new_kind_is_read_and_resolved(
    text: str, gpus: int, resolved: str, tasks: list[str]
) -> None:
    spec = ClusterSpec.parse(text)
    assert str(spec) == text
    found = spec.resolve(gpus=gpus, cpus=6)
    assert str(found) == resolved
    assert [str(task) for task in found.tasks] == tasks


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("twn:3", "ps:W+P | twin:R | fleet:W, each with @cpu"),
        ("twn:3", "Did you mean 'twin:3'?"),
        ("twin:0@gpus", "Did you mean 'twin:1@gpu'?"),
        ("fleet", "Did you mean 'fleet:2'?"),
        ("twin:2,fleet:3", "Give each by itself: -c twin:2 -c fleet:3."),
    ],
)
def test_what_is_no_spec_is_told_of_a_new_kind(text: str, message: str) -> None:
    with pytest.raises(BadInputError, match=re.escape(message)):
        ClusterSpec.parse(text)


def test_what_follows_from_traits_follows_for_a_new_kind() -> None:
    twin, fleet = map(ClusterSpec.parse, ("twin:3@gpu", "fleet:5@gpu"))
    assert (twin.replicas, fleet.replicas) == (3, 1)
    assert (twin.variable_device, fleet.variable_device) == ("gpu", "cpu")
    assert (count_ports(twin), count_ports(fleet)) == (0, 6)
    assert (find_usual_steps(twin), find_usual_steps(fleet)) == (3, 6)
    check_in_flight(2, fleet)
    check_stoppable(twin)


def test_messages_offer_a_new_kind_where_it_would_do() -> None:
    with pytest.raises(BadInputError, match=r"mwms:W or twin:R\. To look"):
        check_stoppable(ClusterSpec.parse("fleet:1"))
    with pytest.raises(BadInputError, match=r"Expected a cluster ps:W\+P or fleet:W\."):
        check_in_flight(2, ClusterSpec.parse("twin:2"))
    with pytest.raises(BadInputError, match=r"Expected a cluster ps:W\+P\. "):
        check_partitioner("fixed:2", ClusterSpec.parse("fleet:1"))


def test_a_script_makes_the_strategy_of_a_new_kind() -> None:
    written = write_cluster(ClusterSpec.parse("twin:2"))
    assert "tf.distribute.TwinStrategy(['cpu:0', 'cpu:1'])" in written
    mirrored = write_cluster(ClusterSpec.parse("mirrored:2"))
    assert written.replace("Twin", "Mirrored") == mirrored
    expected = "ps:W+P or twin:R, those of several tasks without GPUs"
    with pytest.raises(BadInputError, match=re.escape(expected)):
        write_cluster(ClusterSpec.parse("fleet:1"))


def test_a_new_kind_is_made_smaller() -> None:
    failed = make_verdict(make_run(Status.FAIL, findings=(make_finding(),)))
    start = CheckOptions(clusters=("twin:4@gpu",), steps=1)
    tried = shrink(start, make_finding(), lambda _: failed, 2)
    assert [one.options.clusters for one in tried] == [("twin:4@gpu",), ("twin:2@gpu",)]


def test_a_kind_is_named_as_specs_can_be_read() -> None:
    with pytest.raises(ValueError, match="small letters"):
        ClusterKind(name="Twin:")


def test_every_kind_has_a_file_that_makes_its_strategy() -> None:
    files = (PACKAGE / "worker/process/strategies").glob("[a-z]*.py")
    assert {file.stem for file in files} == _NAMES


def test_there_is_one_device_to_hold_clusters_against() -> None:
    assert [kind.name for kind in KINDS.values() if kind.single] == ["one"]
    assert ClusterSpec.parse("one").tasks == (Task(role="worker", index=0),)


_NAMES = frozenset(KINDS)


def list_named(tree: ast.AST) -> Iterator[ast.AST]:
    """Where code asks for a kind of cluster by its name.

    `one` and `ps` mean other things as well: there, what is asked has to be a kind.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Match):
            parts = [node.subject, *(case.pattern for case in node.cases)]
        elif isinstance(node, ast.Dict):
            parts = [key for key in node.keys if key is not None]
        else:
            continue
        inside = [one for part in parts for one in ast.walk(part)]
        values = {one.value for one in inside if isinstance(one, ast.Constant)}
        asks = any(
            "kind" in (getattr(p, "attr", ""), getattr(p, "id", "")) for p in parts
        )
        if values & (_NAMES if asks else _NAMES - {"one", "ps"}):
            yield node


@pytest.mark.parametrize(
    ("code", "is_found"),
    [
        ("spec.kind == 'ps'", True),
        ("'one' != ClusterSpec.parse(text).kind", True),
        ("spec.kind in ('one', 'ps')", True),
        ("kind not in {'mwms'}", True),
        ("{'mirrored': 1, 'central': 2}[spec.kind]", True),
        ("match spec.kind:\n    case 'ps': pass", True),
        ("task.role == 'ps'", False),
        ("{'worker': [], 'ps': []}", False),
        ("fault.kind == 'kill'", False),
    ],
)
def test_who_asks_for_a_kind_by_its_name_is_found(code: str, is_found: bool) -> None:
    assert bool(list(list_named(ast.parse(code)))) == is_found


def test_nobody_asks_for_a_kind_by_its_name() -> None:
    """But its own files. Kinds of faults have names of their own."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: ask for a trait of `spec.traits`"
        for path in PACKAGE.rglob("*.py")
        if PACKAGE / "faults" not in path.parents
        for node in list_named(ast.parse(path.read_text("utf-8")))
    ]
    assert not found
