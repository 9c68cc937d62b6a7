"""The main job end to end: planted mistakes are found and named, correct ones pass."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import pytest

import distbench
from distbench.errors import BadInputError
from distbench.verdict import Status, describe_verdict

pytestmark = pytest.mark.cluster
SUBJECTS = Path(__file__).with_name("subjects.py")


def _check(name: str, cluster: str = "mwms:2", **options):
    return distbench.check(f"{SUBJECTS}:{name}", cluster, **options)


@pytest.mark.first(3)
@pytest.mark.parametrize(
    ("name", "cluster"),
    [
        ("Program", "mwms:2"),
        ("Program", "ps:1+1"),
        ("OwnReduction", "mirrored:2"),
        ("LocalMeanUnderMeanAggregator", "mwms:2"),
        ("NoOptimizer", "mirrored:2"),
        ("make_adam", "mirrored:2"),
        ("make_adam", "central:2"),
        ("make_sgd", "one"),
    ],
)
def test_correct_subjects_pass(name: str, cluster: str) -> None:
    verdict = _check(name, cluster)
    assert verdict.status is Status.PASS, describe_verdict(verdict)
    assert all(run.checked for run in verdict.runs)


def test_a_verdict_on_runs_that_were_skipped_tells_of_the_machine() -> None:
    verdict = _check("make_sgd", "mirrored:4096@gpu")
    assert {run.status for run in verdict.runs} == {Status.SKIPPED}
    named = {"tensorflow", "tf_keras", "keras", "python", "devices", "variables"}
    assert named <= verdict.environment.keys()
    assert verdict.environment["tensorflow"]


@pytest.mark.first(3)
@pytest.mark.parametrize(
    ("name", "code", "phase", "variables"),
    [
        ("LossNotDividedByGlobalBatch", "loss-not-scaled", "loss", {""}),
        ("MeanOfMeans", "mean-of-means", "loss", {""}),
        ("NobodyReduces", "missing-reduction", "reduced_gradient", {"dense/kernel"}),
        ("ReducedTwice", "double-reduction", "reduced_gradient", {"dense/kernel"}),
        (
            "make_identity_aggregator",
            "missing-reduction",
            "reduced_gradient",
            {"kernel", "table"},
        ),
        (
            "make_mean_aggregator",
            "mean-instead-of-sum",
            "reduced_gradient",
            {"kernel", "table"},
        ),
    ],
)
@pytest.mark.parametrize("cluster", ["mirrored:2", "mwms:2"])
def test_planted_mistakes_are_named(
    name: str, code: str, phase: str, variables: set[str], cluster: str
) -> None:
    verdict = _check(name, cluster)
    assert verdict.status is Status.FAIL
    for run in verdict.runs:
        first = run.findings[0]
        found = (first.code, first.phase, first.step)
        assert found == (code, phase, 0), describe_verdict(verdict)
        assert first.variable in variables
        assert first.origin == "subject"
    # Once for each code: the same cluster with the right gradients put in.
    assert [f.confirmed for f in verdict.findings].count(True) == 1


def test_a_slot_fed_with_the_local_gradient_is_named() -> None:
    verdict = _check("make_slot_from_local_gradient", workload="linear")
    assert verdict.status is Status.FAIL
    for run in verdict.runs:
        first = run.findings[0]
        found = (first.code, first.phase)
        assert found == ("slot-from-local-gradient", "slot"), describe_verdict(verdict)
        assert first.variable.endswith("kernel/m")


def test_what_raises_on_one_replica_is_a_finding() -> None:
    verdict = _check("RaisesOnSecondReplica", "mirrored:2")
    finding = verdict.findings[0]
    assert (verdict.status, finding.code) == (Status.FAIL, "raises")
    assert finding.replicas == (1,)
    assert "KeyError" in finding.explanation
    assert "no slot on this replica" in finding.explanation
    line = r'subjects\.py:\d+: raise KeyError\("no slot on this replica"\)'
    assert re.search(line, finding.explanation), finding.explanation


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("GivesUp", ["raises"]),
        ("GivesUpOnWrongLosses", ["loss-not-scaled", "raises"]),
    ],
)
def test_what_is_wrong_before_a_step_raises_comes_first(
    name: str, codes: list[str]
) -> None:
    (run,) = _check(name, "mirrored:2", tier="free").runs
    assert [finding.code for finding in run.findings] == codes
    assert run.findings[-1].step == 2
    assert run.setup["steps"] == 3
    assert "weights are too large" in run.detail


@pytest.mark.parametrize(
    "options",
    [
        {"faults": "nan:replica:1@2"},
        {"restore_from": "mirrored:2", "restore_after": 3, "steps": 2},
    ],
    ids=["fault", "restored"],
)
def test_steps_that_cannot_be_run_by_themselves_are_left(options: Any) -> None:
    """What befell a step, or those before a restore: fewer steps are not the first."""
    (run,) = _check("GivesUp", "mirrored:2", tier="bounded", **options).runs
    assert [(f.code, f.step) for f in run.findings] == [("raises", 2)]


def test_what_leaves_the_process_is_found_in_the_users_file() -> None:
    """AutoGraph names the user's lines of an Exception alone, and this is none."""
    finding = _check("LeavesOnTwoReplicas", "mirrored:2").findings[0]
    assert (finding.code, finding.origin) == ("raises", "subject")
    line = r'subjects\.py:\d+: raise SystemExit\("enough of this"\)'
    assert re.search(line, finding.explanation), finding.explanation


def test_what_the_machine_lacks_is_not_the_subjects_fault() -> None:
    verdict = _check("LacksMemory", "mirrored:2")
    assert verdict.status is Status.ERROR, describe_verdict(verdict)
    for words in ("no room for an array", "ulimit -v", "subjects.py"):
        assert words in describe_verdict(verdict)


def test_a_folder_of_the_users_may_be_called_like_a_package(tmp_path: Path) -> None:
    file = tmp_path / "keras" / "distbench" / "subjects.py"
    file.parent.mkdir(parents=True)
    file.write_bytes(SUBJECTS.read_bytes())
    verdict = distbench.check(f"{file}:RaisesOnSecondReplica", "mirrored:2")
    finding = verdict.findings[0]
    assert finding.origin == "subject"
    assert 'raise KeyError("no slot on this replica")' in finding.explanation


def test_what_fails_when_the_graph_runs_is_found_in_the_users_file() -> None:
    finding = _check("FailsWhenItRuns", "mirrored:2").findings[0]
    assert finding.code == "raises"
    line = r"subjects\.py:\d+: tf\.debugging\.assert_greater\(loss, loss \+ 1\.0"
    assert re.search(line, finding.explanation), finding.explanation


@pytest.mark.parametrize("cluster", ["ps:1+1", "central:2"])
def test_what_the_framework_rejects_is_refused(cluster: str) -> None:
    verdict = _check("make_sgd", cluster, path="user", workload="linear")
    assert {run.status for run in verdict.runs} == {Status.REFUSED}
    assert "experimental_aggregate_gradients" in verdict.runs[0].message


def test_what_it_rejects_of_an_update_by_hand_is_refused() -> None:
    """A program without an optimizer has a stock one as its control, too."""
    verdict = distbench.check(
        "distbench.samples.program:ByHand", "mirrored:2", tier="bounded", jit=True
    )
    [run] = verdict.runs
    assert run.status is Status.REFUSED, describe_verdict(verdict)
    assert "Multiple CPU devices" in run.message


def test_a_mean_over_three_replicas_is_not_called_exact() -> None:
    verdict = _check(
        "make_sgd", "mirrored:3", path="aggregator-mean", workload="linear"
    )
    assert verdict.status is Status.PASS, describe_verdict(verdict)
    assert [run.tier for run in verdict.runs] == ["bounded"]


def test_a_rule_that_is_led_by_a_norm_of_its_own_passes() -> None:
    """The norm of the sum is one unit off here, and so is the step."""
    verdict = distbench.check(
        "distbench.unusual.statistics:NormOfTheSum",
        "mirrored:3",
        workload="embedding",
        tier="bounded",
        seed=114265070,
        steps=1,
    )
    assert verdict.status is Status.PASS, describe_verdict(verdict)


def test_a_dtype_that_the_collectives_lack_is_refused() -> None:
    # Either worker may fail first, each in an op of its own.
    verdict = _check("make_sgd", dtype="bfloat16", workload="linear")
    assert {run.status for run in verdict.runs} == {Status.REFUSED}
    assert "bfloat16 is not in the list of allowed values" in verdict.runs[0].message


@pytest.mark.first(3)
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("NoLoss", "replica_step returned no loss"),
        ("TakesPartsApart", r"called as replica_step\(batch\).*\(features, labels\)"),
        ("OptimizerByName", "must return an optimizer.*'sgd'.*type 'str'"),
        ("OptimizerNotMade", "must return an optimizer.*class 'SGD' itself"),
        (
            "RaisesEverywhere",
            r"one device already.*broken from the start, at \S+\.py:\d+: raise",
        ),
        ("TooFewExamples", "at least one example per replica"),
        ("make_no_optimizer", "returned no optimizer.*a compiled Keras model.*'str'"),
        ("make_nothing", "returned no optimizer.*nothing, as of a function without a"),
        ("make_model_without_data", r"a Keras model, which needs data\(step\)"),
        (
            "make_model_with_dataset",
            r"whose 'data' is an object of type 'Batches' in place of a function.*next",
        ),
        ("make_program", "is a train program.*name the program itself as the target"),
        (
            "make_with_rate",
            r"takes \(rate\)\..*return make_with_rate\(\.\.\.\)\.",
        ),
        ("Plain", "no optimizer.*'Plain', which as a train program lacks build, repl"),
        ("WithLists", r"the shapes \['.*as a structure: use np\.array"),
        ("WithoutVariables", "Train program 'WithoutVariables' lacks variables"),
        (
            "VariableNames",
            r"variables\(\) of 'VariableNames' must return a list.*type 'str' in it",
        ),
        ("VariablesAsProperty", "lacks variables.*Make a method of variables"),
        ("WithoutStep", "Train program 'WithoutStep' lacks replica_step"),
        ("WithArgument", r"is a class, .*takes \(path.*program = WithArgument\("),
        (
            "WithDataset",
            r"must return NumPy arrays.*Received: .*Dataset'\..* in dataset\(\) or",
        ),
        ("made_optimizer", "an optimizer or a model itself.*callable without"),
        ("SUBJECT", "has no attribute 'SUBJECT'"),
    ],
)
def test_bad_input_gets_one_clear_error(name: str, words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        _check(name)


def test_fewer_examples_than_replicas_name_both_numbers() -> None:
    with pytest.raises(BadInputError, match="1 example, 2 replicas"):
        _check("TooFewExamples", "mwms:2")


def test_a_check_leaves_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert _check("Program").status is Status.PASS
    assert list(tmp_path.iterdir()) == []


def test_a_replica_without_examples_is_no_fault() -> None:
    verdict = _check("make_adam", "mirrored:2", split=(8, 0), workload="linear")
    assert verdict.status is Status.PASS, describe_verdict(verdict)


def test_a_split_adds_up_to_what_the_program_brings() -> None:
    with pytest.raises(BadInputError, match=r"add up to the 16 examples.*which is 9"):
        _check("Program", "mirrored:2", split=(5, 4))
