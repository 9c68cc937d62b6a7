"""Programs that break the contract get one clear error; unusual ones are understood."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import distbench
from distbench.cluster import ClusterSpec
from distbench.diagnose.judge import judge
from distbench.errors import BadInputError
from distbench.launch.rundir import RunDirectory
from distbench.observe import Launch, Observation, observe
from distbench.scenario import Scenario
from distbench.scenario.choices import PROGRAM
from distbench.target import parse_target
from distbench.verdict import Status

pytestmark = pytest.mark.cluster
PROGRAMS = Path(__file__).with_name("odd_programs.py")


@pytest.fixture(scope="module")
def launch() -> Iterator[Launch]:
    """One fork server for all programs."""
    with RunDirectory() as directory:
        yield Launch(directory=directory)


def _observe(
    launch: Launch,
    name: str,
    cluster: str = "mirrored:2",
    workload: str = PROGRAM,
    **options,
) -> Observation:
    scenario = Scenario(target=name, workload=workload, cluster=cluster, **options)
    spec = ClusterSpec.parse(cluster).resolve(gpus=0, cpus=2)
    target = parse_target(f"{PROGRAMS}:{name}")
    seen = observe(target, scenario, spec, ("bounded",), launch)
    if seen.failure is not None and seen.failure.kind == "input":
        raise BadInputError(seen.failure.message)
    return seen


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("LossPerExample", r"one number.*float32 tensor of shape \(8,\).*reduce_sum"),
        ("LossAsText", "one number.*Received: a string tensor"),
        ("LossInDictionary", "one number.*Received: an object of type 'dict'"),
        (
            "DataRunsOut",
            r"in data: EOFError: no more data, at .*py:\d+: raise EOFError",
        ),
        ("DataAsLists", r"NumPy arrays.*'0/0/1': \(\), .*, \.\.\.\]\. Lists"),
        ("RaisesInBetween", "in before_step: LookupError: nothing to do before step 0"),
        ("ExitsInBuild", "in build: SystemExit: usage: train.py"),
        ("RaisesWhenAsked", "in build: LookupError: not known before build, at "),
        ("RaisesWhenAskedAgain", "in first step: LookupError: they were listed"),
        ("MakesOptimizerLate", r"optimizer\(\).*'MakesOptimizerLate'.*build"),
        ("ListsNoVariables", r"variables\(\).*'ListsNoVariables'.*no variable"),
        ("ListsVariablesByName", "a list of variables.*an object of type 'dict'"),
        ("ListsOneVariable", "a list of variables.*an object of type '.*Variable'"),
        ("GivesVariableTwice", "given 'w' twice in one call"),
        ("DrawsAnew", r"data\(0\).*the same batch in every process.*Seed"),
    ],
)
def test_a_broken_contract_gets_one_clear_error(
    launch: Launch, name: str, words: str
) -> None:
    with pytest.raises(BadInputError, match=words):
        _observe(launch, name)


@pytest.mark.first(3)
@pytest.mark.parametrize(
    "name",
    [
        "LossOfOneElement",
        "NamesItsOptimizers",
        "DrawsOn",
        "MovesInBetween",
        "DifferentiatesInside",
        "SmallerLastBatch",
        "LoneLastExample",
    ],
)
def test_unusual_programs_pass(launch: Launch, name: str) -> None:
    judgement = judge(_observe(launch, name, "mwms:2").evidence["bounded"])
    assert judgement.status is Status.PASS, judgement.findings


def test_a_mistake_that_shows_in_the_last_batch_alone_is_found(launch: Launch) -> None:
    """Its other batches are shared out evenly."""
    seen = _observe(launch, "MeanOfLastBatch", split=(4, 4))
    (found, *_) = judge(seen.evidence["bounded"]).findings
    assert (found.code, found.phase, found.step) == ("mean-of-means", "loss", 2), found


@pytest.mark.parametrize(
    ("name", "workload", "rule"),
    [
        ("make_for_references", "linear", "_resource_apply_dense"),
        ("make_for_references", "embedding", "_resource_apply_sparse"),
        ("make_for_dense_gradients", "embedding", "_resource_apply_sparse"),
    ],
)
def test_a_rule_that_tensorflow_2_asks_for_and_is_not_there_is_named(
    launch: Launch, name: str, workload: str, rule: str
) -> None:
    place = rf"by {rule} \(tensorflow/python/training/optimizer.py:\d+\)"
    words = f"one device already in applied_gradient: NotImplementedError: .*{place}"
    with pytest.raises(BadInputError, match=words):
        _observe(launch, name, workload=workload)


def test_what_happens_between_two_steps_happens_once(launch: Launch) -> None:
    """An update that is tried several times starts from the halved slots each time."""
    judgement = judge(_observe(launch, "RepeatedAfterRestart").evidence["bounded"])
    first = judgement.findings[0]
    assert (first.code, first.phase) == ("update-repeated", "variable"), first


def test_replays_start_where_the_cluster_did(launch: Launch) -> None:
    """A random program takes another way each time; its replays must not."""
    evidence = _observe(launch, "Dropout").evidence["bounded"]
    checked = 0
    for key, value in evidence.fed.replays["reduced_gradient"].values.items():
        if key.phase in ("slot", "variable"):
            checked += 1
            observed = evidence.observed.get(key)
            assert observed.tobytes() == value.tobytes(), key
    assert checked


def test_an_exit_on_the_cluster_alone_is_the_subjects(launch: Launch) -> None:
    failure = _observe(launch, "ExitsOnCluster").failure
    assert failure is not None
    assert (failure.kind, failure.exception) == ("subject", "SystemExit")


def test_what_is_raised_where_replicas_meet_tells_the_line_that_led_there(
    launch: Launch,
) -> None:
    """TensorFlow raises it in a thread that has none of the user's lines."""
    failure = _observe(launch, "AddsANumberWhereReplicasMeet").failure
    assert failure is not None
    assert (failure.kind, failure.exception) == ("subject", "ValueError")
    assert failure.frame.endswith("self.steps.assign_add(1.0)"), failure.frame
    assert "in replica_step" in failure.traceback


def test_what_is_made_in_a_step_and_not_before_is_told_with_its_line(
    launch: Launch,
) -> None:
    """TensorFlow lifts its first value out of the graph later, and knows no line."""
    failure = _observe(launch, "MakesAVariableInItsStep").failure
    assert failure is not None
    assert failure.exception == "UnliftableError"
    made = "self.count = tf.Variable(tf.constant(0.0), trainable=False)"
    assert failure.frame.endswith(made), failure.frame


def test_replicas_of_one_process_that_sum_in_another_order_never_meet() -> None:
    verdict = distbench.check(
        f"{PROGRAMS}:SumsInAnotherOrder", "mirrored:2", tier="bounded"
    )
    (found,) = verdict.findings
    assert (found.code, found.origin) == ("collective-mismatch", "subject")
    words = r"the replicas wait .*\[4, 2\]|\[8\].* on CPU:0 and .*\[1\].* on CPU:1"
    assert re.search(words, found.explanation), found.explanation


def test_shapes_that_the_split_makes_differ_are_told_with_it() -> None:
    verdict = distbench.check(f"{PROGRAMS}:SumsItsExamples", "mirrored:2")
    (found,) = verdict.findings
    assert found.code == "collective-mismatch"
    assert "differ as the shards do, which hold" in found.explanation
    assert "'split=(" in found.explanation


def test_variables_that_each_process_names_otherwise_are_refused() -> None:
    words = r"named differently .*'kernel_\d+' in worker-0, 'kernel_\d+' in worker-1"
    with pytest.raises(BadInputError, match=words):
        distbench.check(f"{PROGRAMS}:NamedByProcess", "mwms:2")


@pytest.mark.parametrize(
    ("name", "variable"), [("NamedByReplicas", "w_of_2"), ("CountsOnClusters", "count")]
)
def test_a_variable_that_one_device_knows_by_no_such_name_does_not_go_unseen(
    launch: Launch, name: str, variable: str
) -> None:
    judgement = judge(_observe(launch, name).evidence["bounded"])
    assert judgement.status is Status.VACUOUS
    assert f"'{variable}' was trained, and compared with nothing" in judgement.message
