"""Faults and programs that are drawn at random, without running them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest
from drawn_checks import check_expected, check_gradient, check_shards

from distbench.cli import main
from distbench.errors import BadInputError
from distbench.faults import FAULTS, generated
from distbench.faults.generated import generate
from distbench.faults.generated.mistake import MISTAKES
from distbench.selftest.drawn import (
    Seeds,
    describe_drawn,
    drawn_to_json,
    plan_drawn,
    render_drawn,
)
from distbench.selftest.score import Cell, Passed, Score
from distbench.verdict import Status

SEEDS = range(24)


@pytest.fixture(scope="module")
def drawn() -> list[generated.Generated]:
    return [generate(seed) for seed in SEEDS]


def test_a_seed_always_gives_the_same(drawn: list[generated.Generated]) -> None:
    code = (
        "from distbench.faults.generated import generate\n"
        "for made in map(generate, range(6)):\n"
        "    print(made.fault, made.facts.plan.describe())"
    )
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    )
    here = [f"{made.fault} {made.facts.plan.describe()}" for made in drawn[:6]]
    assert other.stdout.splitlines() == here


def test_kinds_of_mistakes_are_many_and_have_names_of_their_own() -> None:
    assert len(MISTAKES) >= 50
    assert len({kind.name for kind in MISTAKES}) == len(MISTAKES)


def test_what_is_expected_names_things_of_the_program(
    drawn: list[generated.Generated],
) -> None:
    for made in drawn:
        check_expected(made)


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
    for made in drawn:
        check_gradient(made)


def test_shards_are_uneven_and_every_replica_has_a_part(
    drawn: list[generated.Generated],
) -> None:
    for made in drawn:
        check_shards(made)


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
