"""A program may bring an input pipeline: what it gives is counted and trained on."""

from __future__ import annotations

from pathlib import Path

import pytest

import distbench
from distbench.errors import BadInputError
from distbench.verdict import Status, describe_verdict

pytestmark = pytest.mark.cluster
LONG = pytest.mark.nightly  # what it shows is shown by a shorter test as well
FOLDER = Path(__file__).parent


def _check(name: str, cluster: str, file: str = "pipelines.py", **options):
    return distbench.check(f"{FOLDER / file}:{name}", cluster, **options)


@pytest.mark.parametrize(
    ("name", "cluster"),
    [
        ("Sharded", "mwms:2"),
        ("Sharded", "mirrored:2"),
        ("Shuffled", "mwms:2"),
        ("Endless", "mwms:2"),
        ("SeededBeforeSharded", "mwms:2"),
        ("SeededByItself", "mwms:2"),
        ("Distributed", "mwms:2"),
        ("FromFiles", "mwms:2"),
        ("Sharded", "ps:2+1"),
        ("Remainder", "mwms:2"),
        ("RemainderOfCounted", "mwms:3"),
        ("LoneRemainder", "mwms:2"),
        ("Remainder", "mirrored:2"),
        ("Remainder", "ps:2+1"),
        ("Distributed", "ps:2+1"),
        ("FromUnevenFiles", "ps:2+1"),
        ("ShardedByHand", "mwms:2"),
        ("Endless", "ps:2+1"),
    ],
)
def test_pipelines_that_give_each_example_once_pass(name: str, cluster: str) -> None:
    verdict = _check(name, cluster)
    assert verdict.status is Status.PASS, describe_verdict(verdict)
    assert {"loss", "variable"} <= set(verdict.runs[0].references)


def test_a_pipeline_beside_the_data_is_told() -> None:
    verdict = _check("BesideBatches", "mirrored:2")
    assert verdict.status is Status.PASS, describe_verdict(verdict)
    assert "has 'dataset_fn' as well, which was not called" in verdict.runs[0].message


@pytest.mark.parametrize(
    ("name", "code", "ratio", "replicas"),
    [
        ("NotSharded", "examples-repeated", 2.0, (0, 1)),
        ("EndlesslyNotSharded", "examples-repeated", 2.0, (0, 1)),
        ("SwitchedOff", "examples-repeated", 2.0, (0, 1)),
        ("InPlaceOfInherited", "examples-repeated", 2.0, (0, 1)),
        ("OneShardTooMany", "examples-missed", 2 / 3, ()),
        ("EndlesslyOneTooMany", "examples-missed", 2 / 3, ()),
    ],
)
def test_examples_that_come_twice_or_never_are_counted(
    name: str, code: str, ratio: float, replicas: tuple[int, ...]
) -> None:
    verdict = _check(name, "mwms:2", steps=2)
    assert verdict.status is Status.FAIL, describe_verdict(verdict)
    first, *others = verdict.runs[0].findings
    assert (first.code, first.phase, first.replicas) == (code, "loss", replicas)
    assert first.ratio == pytest.approx(ratio)
    assert not others, describe_verdict(verdict)


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("ScaledByPipeline", 2),
        pytest.param("ScaledByPipeline", 1, marks=LONG),
        pytest.param("EndlesslyScaledByPipeline", 2, marks=LONG),
    ],
)
def test_what_a_pipeline_makes_of_its_examples_is_told(name: str, steps: int) -> None:
    (found,) = _check(name, "mwms:2", steps=steps, tier="bounded").findings
    assert (found.code, found.replicas) == ("examples-missed", (1,)), found
    assert "'batch/1' is that of one device times 2" in found.explanation


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("RemainderOfMeans", "mean-of-means"),
        ("LoneRemainderOfMeans", "nonfinite"),
    ],
)
def test_the_smaller_batch_that_ends_an_epoch_is_checked(name: str, code: str) -> None:
    """All before it are even; it is the fifth, and takes the place of the third."""
    (run,) = _check(name, "mirrored:2").runs
    assert run.status is Status.FAIL, run
    assert (run.findings[0].code, run.findings[0].step) == (code, 2)
    assert "step 2 (batch 4 of the epoch) has" in run.message


@pytest.mark.parametrize("cluster", ["mwms:3", "mwms:4"])
def test_files_of_other_lengths_give_each_example_once(cluster: str) -> None:
    """In the second step of three workers one of them is at its end already."""
    verdict = _check("FromUnevenFiles", cluster, steps=2)
    assert verdict.status is Status.PASS, describe_verdict(verdict)
    assert len(verdict.runs[0].setup["split"]) == int(cluster[-1])
    assert "+ 0" in verdict.runs[0].message


@LONG
def test_what_a_worker_of_parameter_servers_reads_twice_is_counted() -> None:
    verdict = _check("ReadTwice", "ps:2+1", "worker_pipelines.py", steps=2)
    (found,) = verdict.findings
    assert found.code == "examples-repeated", describe_verdict(verdict)
    assert found.ratio == pytest.approx(26 / 24)
    assert "workers 0, 1: 4 times" in found.explanation


@LONG
def test_files_that_are_sharded_twice_are_counted() -> None:
    verdict = _check("ShardedAgain", "mwms:3", steps=1)
    first = verdict.findings[0]
    assert first.code == "examples-missed", describe_verdict(verdict)
    assert first.ratio == pytest.approx(1 / 3)


@LONG
def test_a_worker_without_a_file_is_an_error_in_tensorflows_words() -> None:
    (found,) = _check("FromTooFewFiles", "mwms:3", tier="bounded").findings
    assert (found.code, found.phase) == ("raises", "data")
    assert "not enough for the required 3 shards/workers" in found.explanation


@pytest.mark.parametrize(
    ("name", "code", "ratio"),
    [
        pytest.param("ByWorker", None, None, marks=pytest.mark.nightly),
        ("ByOneWorkerTooMany", "examples-missed", 2 / 3),
        ("DropsInEachShare", "examples-missed", 14 / 21),
        ("InAnOrderOfItsOwn", "examples-repeated", 1),
        ("InOneOrder", None, None),
    ],
)
def test_workers_that_ask_for_their_number_share_the_examples(
    name: str, code: str | None, ratio: float | None
) -> None:
    verdict = _check(name, "ps:2+1", "worker_pipelines.py", steps=2, tier="bounded")
    found = [(finding.code, finding.ratio) for finding in verdict.findings]
    expected = [] if code is None else [(code, pytest.approx(ratio))]
    assert found == expected, describe_verdict(verdict)
    assert verdict.status is (Status.PASS if code is None else Status.FAIL)


def test_orders_that_no_seed_makes_alike_repeat_examples_in_place_of_others() -> None:
    verdict = _check("ShuffledBeforeSharded", "mwms:2")
    codes = [finding.code for finding in verdict.findings]
    assert codes == ["examples-repeated"], describe_verdict(verdict)
    assert "in place of as many that are missed" in verdict.findings[0].explanation


def test_a_pipeline_that_ends_too_early_says_so() -> None:
    with pytest.raises(BadInputError, match="an epoch of 3 batches"):
        _check("Sharded", "mwms:2", steps=4)


@pytest.mark.parametrize(
    ("name", "cluster", "file", "steps"),
    [
        ("DropsInEachShare", "ps:2+1", "worker_pipelines.py", 3),
        pytest.param("OneShardTooMany", "mwms:2", "pipelines.py", 3, marks=LONG),
    ],
)
def test_an_epoch_that_is_shorter_than_on_one_device_is_checked_to_its_end(
    name: str, cluster: str, file: str, steps: int
) -> None:
    (run,) = _check(name, cluster, file, steps=steps, tier="bounded").runs
    assert [found.code for found in run.findings] == ["examples-missed"], run
    assert run.setup["steps"] == steps - 1
    assert f"steps on the cluster, which were taken in place of {steps}" in run.message


def test_where_one_device_reads_nothing_more_it_is_bad_input() -> None:
    with pytest.raises(BadInputError, match=r"an epoch of 3 batches\. Ask"):
        _check("DropsInEachShare", "one", "worker_pipelines.py", steps=4)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Unreadable", "one device already in data: LookupError: no files, at"),
        ("GivesNothing", r"dataset_fn\(input_context\) must return.*'NoneType'"),
        ("TakesNothing", r"dataset_fn is called as dataset_fn\(input_context\)"),
        ("Empty", "an epoch of 0 batches"),
        ("GivesRagged", "dense arrays.*a RaggedTensor. Pad it where it is read"),
    ],
)
def test_a_pipeline_that_works_nowhere_is_bad_input(name: str, words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        _check(name, "mwms:2", "broken_pipelines.py")


def test_a_pipeline_that_fails_on_the_cluster_alone_is_a_finding() -> None:
    finding = _check("ReadableByOne", "mwms:2", "broken_pipelines.py").findings[0]
    assert (finding.code, finding.phase) == ("raises", "data")
    assert "LookupError: no part of the files" in finding.explanation


def test_shapes_that_are_no_global_batch_are_told_of_the_pipeline() -> None:
    with pytest.raises(BadInputError, match=r"as many axes.*shapes \(\), \(1,\)"):
        _check("OfOtherAxes", "mwms:2")


@pytest.mark.parametrize(
    ("name", "code", "note"),
    [
        ("Padded", "", "padded to other lengths; zeros fill them up"),
        ("PaddedNotSharded", "examples-repeated", ""),
        ("PaddedByOther", "", "other values than 0 may fill up shorter examples"),
        ("PaddedByOtherNotSharded", "", "other values than 0 may fill up shorter"),
    ],
)
def test_examples_are_known_whatever_they_are_padded_to(
    name: str, code: str, note: str
) -> None:
    """By zeros, that is; of other values it is said that nothing was counted."""
    (run,) = _check(name, "mwms:2", "padded_pipelines.py").runs
    assert [finding.code for finding in run.findings] == [code][: bool(code)]
    assert note in run.message


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("WholeBatchesForAll", "together read 16 examples, where one device reads 8"),
        ("EndlessUnevenParts", "each of the former counts 2 "),
        ("NoisyByPlace", "so it is not known whether each comes once"),
        ("TakenAfterShard", "one device reads 16 in an epoch, of 16"),
    ],
)
def test_what_may_be_meant_is_noted(name: str, note: str) -> None:
    (run,) = _check(name, "mwms:2", steps=2, tier="bounded").runs
    assert run.status is Status.PASS, run
    assert note in run.message
