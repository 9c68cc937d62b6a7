"""Variables in shards on parameter servers, slots and embeddings with them."""

from __future__ import annotations

from pathlib import Path

import pytest

import distbench
from distbench.errors import BadInputError
from distbench.verdict import Status, describe_verdict

pytestmark = pytest.mark.cluster
SUBJECTS = Path(__file__).with_name("shard_subjects.py")


def _check(name: str, partitioner: str, **options):
    return distbench.check(
        f"{SUBJECTS}:{name}", "ps:1+2", partitioner=partitioner, **options
    )


@pytest.mark.parametrize(
    ("name", "partitioner", "options"),
    [
        ("Sharded", "fixed:2", {}),
        ("Sharded", "min:8:3", {}),
        ("NamedAsShards", "fixed:2", {"tier": "bounded"}),
        ("DrawnByLayers", "fixed:2", {"tier": "bounded"}),
        ("SlotsOfKeras2", "fixed:2", {"tier": "bounded"}),
        ("Scheduled", "fixed:2", {"tier": "bounded"}),
        ("make_adam", "max:8", {"workload": "linear"}),
        ("make_adam", "fixed:3", {"workload": "embedding"}),
    ],
)
def test_shards_and_their_slots_are_as_on_one_device(
    name: str, partitioner: str, options: dict
) -> None:
    verdict = _check(name, partitioner, **options)
    assert verdict.status is Status.PASS, describe_verdict(verdict)
    assert all(run.checked for run in verdict.runs if run.status is Status.PASS)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "partitioner", "workload"),
    [
        ("WithSlots", "fixed:2", None),
        ("make_clipped", "max:8", "linear"),
    ],
)
def test_a_global_norm_is_that_of_all_shards(
    name: str, partitioner: str, workload: str | None
) -> None:
    verdict = _check(name, partitioner, workload=workload, tier="bounded")
    assert verdict.status is Status.PASS, describe_verdict(verdict)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "noted"), [("make_clipped", False), ("make_with_norm", True)]
)
def test_a_rule_of_shards_that_is_no_rule_of_whole_variables_is_told(
    name: str, noted: bool
) -> None:
    verdict = _check(name, "max:8", workload="linear", tier="bounded")
    assert verdict.status is Status.PASS, describe_verdict(verdict)
    (run,) = verdict.runs
    assert ("where no variable is cut into shards" in run.message) == noted


@pytest.mark.nightly
def test_a_norm_of_each_shard_is_found() -> None:
    verdict = _check("make_clipping_each", "max:8", workload="linear", tier="bounded")
    assert verdict.findings[0].code == "clip-before-reduction"


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("Named", "fixed:3", "fixed:2"),
        ("SlotsMadeBefore", "fixed:2", "fixed:3"),
        ("WithSlots", "fixed:2", None),
    ],
)
def test_a_checkpoint_is_restored_under_another_number_of_shards(
    name: str, before: str, after: str | None
) -> None:
    verdict = distbench.check(
        f"{SUBJECTS}:{name}",
        "ps:1+3",
        tier="bounded",
        partitioner=after,
        restore_from="ps:1+3",
        restore_partitioner=before,
    )
    assert verdict.status is Status.PASS, describe_verdict(verdict)


@pytest.mark.nightly
def test_slots_of_shards_that_are_not_restored_are_found() -> None:
    verdict = _check(
        "WithSlots",
        "fixed:2",
        tier="bounded",
        restore_from="ps:1+2",
        restore_partitioner="fixed:2",
    )
    (finding,) = verdict.findings
    assert (finding.code, finding.phase) == ("state-not-restored", "slot")
    assert finding.ratio == 0
    assert "Adam/rows/part_0/m" in finding.variables


@pytest.mark.nightly
def test_shards_without_a_name_fail_as_tensorflow_lets_them() -> None:
    verdict = _check("WithSlotsUnnamed", "fixed:2", tier="bounded")
    (finding,) = verdict.findings
    assert finding.code == "raises"
    assert "RecursionError" in finding.explanation


@pytest.mark.nightly
@pytest.mark.parametrize("partitioner", ["", "fixed:2"], ids=["whole", "in-shards"])
def test_a_loss_divided_by_the_workers_is_found(partitioner: str) -> None:
    """Each scheduled step is a global batch: `num_replicas_in_sync` leaves them out.

    Shards of a variable without a name are set before each step, and compared, too.
    """
    verdict = distbench.check(
        f"{SUBJECTS}:DividedByWorkers",
        "ps:2+1",
        partitioner=partitioner,
        tier="bounded",
    )
    (finding,) = verdict.findings
    assert (finding.code, finding.phase, finding.ratio) == ("scale-error", "loss", 0.5)
    assert any("kernel" in name for name in finding.variables)


def test_gradients_of_shards_that_are_swapped_are_found() -> None:
    verdict = _check("make_swapping", "max:8", workload="linear", tier="bounded")
    first = verdict.findings[0]
    assert (first.code, first.phase) == ("wrong-pairing", "reduced_gradient")
    assert {"kernel/part_0", "kernel/part_1"} <= set(first.variables)


@pytest.mark.parametrize("partitioner", ["fixed:2", "min:256:2"])
def test_a_variable_without_rows_is_refused_by_name(partitioner: str) -> None:
    import tensorflow as tf

    from distbench.worker.state.partition import shard_variables

    with (
        shard_variables(partitioner),
        pytest.raises(BadInputError, match=r"'none' must have a row.*\(0, 3\)"),
    ):
        tf.Variable(tf.zeros([0, 3]), name="none")
