"""Faults and programs that are drawn at random, without running them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from distbench.cli import main
from distbench.errors import BadInputError
from distbench.faults import FAULTS, generated
from distbench.faults.generated import generate
from distbench.faults.generated.facts import Facts
from distbench.faults.generated.mistake import MISTAKES
from distbench.samples.drawn.gradient import compute_gradients
from distbench.samples.drawn.training import PATHS
from distbench.selftest.drawn import (
    Seeds,
    describe_drawn,
    drawn_to_json,
    plan_drawn,
    render_drawn,
)
from distbench.selftest.score import Cell, Passed, Score
from distbench.split import shard_slices
from distbench.verdict import Status

SEEDS = range(150)


@pytest.fixture(scope="module")
def drawn() -> list[generated.Generated]:
    return [generate(seed) for seed in SEEDS]


def test_a_seed_always_gives_the_same() -> None:
    code = (
        "from distbench.faults.generated import generate\n"
        "print([(m.fault, m.facts.plan.describe()) for m in map(generate, range(20))])"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        for _ in range(2)
    ]
    assert runs[0].stdout == runs[1].stdout != b""


def test_kinds_codes_paths_and_clusters_are_covered(
    drawn: list[generated.Generated],
) -> None:
    assert len(MISTAKES) >= 50
    assert len({kind.name for kind in MISTAKES}) == len(MISTAKES)
    seen = Counter(made.mistake.name for made in drawn)
    assert len(seen) > 0.8 * len(MISTAKES)
    assert len({made.fault.code for made in drawn}) >= 25
    assert {made.facts.plan.path for made in drawn} == set(PATHS)
    assert {made.cluster for made in drawn} == {"mirrored:2", "mirrored:3", "mwms:2"}


def test_what_is_expected_names_things_of_the_program(
    drawn: list[generated.Generated],
) -> None:
    for made in drawn:
        fault, plan = made.fault, made.facts.plan
        assert fault.clusters == (made.cluster,)
        assert fault.variables
        assert len(set(fault.variables)) == len(fault.variables)
        of_model = fault.phase.endswith("gradient") or fault.code == "update-repeated"
        if of_model:
            assert set(fault.variables) <= set(plan.order)
        assert (fault.phase == "loss") == (fault.variables == ("",))
        replicas = fault.list_replicas(made.cluster)
        assert replicas is None or len(set(replicas)) == len(replicas) > 0


def test_programs_differ_in_their_mistake_alone(
    drawn: list[generated.Generated],
) -> None:
    for made in drawn[:20]:
        faulty, clean = made.make_faulty(), made.make_clean()
        assert faulty.plan is clean.plan
        assert issubclass(faulty, made.mistake.program)
        assert not issubclass(clean, made.mistake.program)


def test_programs_are_attributes_of_a_module() -> None:
    assert generated.fault_17.__name__ == "Fault17"
    assert generated.clean_17.__name__ == "Clean17"
    with pytest.raises(AttributeError, match="fault_x"):
        _ = generated.fault_x
    assert not {fault.name for fault in FAULTS} & {"fault_17", "clean_17"}


def test_the_gradient_is_that_of_the_loss(drawn: list[generated.Generated]) -> None:
    """The shards' gradients add up to the whole batch's."""
    for made in drawn[:40]:
        plan = made.facts.plan
        values, batch = plan.problem.draw_values(), plan.problem.draw_batch(0)
        whole = compute_gradients(plan.problem, values, batch, slice(None), 1.0)
        for name in plan.order:
            np.testing.assert_allclose(
                made.facts.total(name), whole.dense[name], rtol=1e-6, atol=1e-12
            )


def test_shards_are_uneven_and_every_replica_has_a_part(
    drawn: list[generated.Generated],
) -> None:
    for made in drawn:
        facts: Facts = made.facts
        assert len(set(facts.shards)) > 1
        assert sum(facts.shards) == facts.plan.problem.examples
        assert shard_slices(facts.shards)[0].start == 0
        for name in facts.names:
            assert all(np.any(term.dense[name]) for term in facts.terms)


@pytest.mark.parametrize("seed", [-1, 1 << 31])
def test_a_seed_must_be_a_seed(seed: int) -> None:
    with pytest.raises(BadInputError, match=str(seed)):
        generate(seed)


def make_cell(*, right: bool) -> Cell:
    return Cell(
        fault="fault_17",
        cluster="mirrored:2",
        status=Status.FAIL,
        detected=True,
        code=right,
        phase=True,
        variable=True,
        replicas=True,
        found=("bounded: scale-error, loss, replicas 0, 1",),
    )


ALARM = Passed(
    program="clean_17", cluster="mirrored:2", status=Status.FAIL, found=("x",)
)


def test_a_plan_has_the_fault_and_the_program_of_each_seed() -> None:
    items = plan_drawn(Seeds(first=5, count=3))
    names = [item.sample.name for item in items]
    assert names[:2] == ["fault_5", "clean_5"]
    assert len(items) == 6
    assert all(item.cluster in item.sample.clusters for item in items)
    assert items[0].cluster == items[1].cluster


def test_what_fails_says_how_to_run_it_again() -> None:
    command = "distbench check distbench.faults.generated:fault_17 -c mirrored:2"
    assert command in describe_drawn(make_cell(right=False))
    assert "again" not in describe_drawn(make_cell(right=True))
    assert "generated:clean_17 -c mirrored:2" in describe_drawn(ALARM)


@pytest.mark.parametrize(
    ("count", "first", "words"),
    [(0, 0, "--random"), (1, -1, "--from-seed"), (2, (1 << 31) - 1, "--from-seed")],
)
def test_seeds_are_validated(count: int, first: int, words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        Seeds(first=first, count=count)


def test_the_document_is_that_of_a_selftest_with_what_was_drawn() -> None:
    score = Score(faults=(make_cell(right=False),), unusual=(ALARM,))
    document = json.loads(drawn_to_json(score, Seeds(first=17, count=1)))
    assert document["schema"] == "distbench/selftest/1"
    assert document["ok"] is False
    drawn = document["random"]
    assert (drawn["from_seed"], drawn["count"]) == (17, 1)
    assert drawn["faults"][0]["fault"] == "fault_17"
    assert drawn["clean"][0]["program"] == "clean_17"
    assert drawn["shares"]["code"] == 0.0
    assert drawn["false_alarms"] == 1


@pytest.fixture
def call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["distbench", "selftest", *words])
        with pytest.raises(SystemExit) as stopped:
            main()
        out = capsys.readouterr()
        return int(stopped.value.code or 0), out.out, out.err

    return run


@pytest.mark.parametrize("right", [True, False], ids=["right", "wrong"])
def test_the_command_tells_each_seed(
    right: bool,
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[..., tuple[int, str, str]],
    tmp_path,
) -> None:
    cell = replace(make_cell(right=right), fault="fault_17")

    def play(items: object, tell: Callable[..., None]) -> Score:
        tell(cell, 1, 2)
        return Score(faults=(cell,), unusual=())

    monkeypatch.setattr("distbench.selftest.run.run_selftest", play)
    file = tmp_path / "random.json"
    words = ("--random", "1", "--from-seed", "17", "--json", str(file))
    code, out, err = call(*words)
    assert code == (0 if right else 1)
    assert f"[1/2] fault_17 on mirrored:2: {'ok' if right else 'code'}" in err
    assert "code right: " in out
    assert json.loads(file.read_text())["random"]["count"] == 1
    if not right:
        fault = generate(17).fault
        flat = " ".join(out.split())
        assert fault.summary in flat
        assert f"expected {fault.code}" in flat
        assert "found bounded: scale-error" in flat


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--from-seed", "3"), "--random"),
        (("--random", "2", "--only", "raises"), "--only"),
        (("--random", "2", "-c", "mwms:2"), "--cluster"),
        (("--random", "0"), "--random"),
    ],
)
def test_the_command_refuses_what_does_not_fit(
    words: tuple[str, ...],
    message: str,
    call: Callable[..., tuple[int, str, str]],
) -> None:
    code, _, err = call(*words)
    assert code == 2
    assert message in err


def test_what_is_right_is_not_listed() -> None:
    from rich.console import Console

    console = Console(width=200)
    with console.capture() as captured:
        console.print(render_drawn(Score(faults=(make_cell(right=True),), unusual=())))
    assert "found" not in captured.get()
    assert "passed" in captured.get()
