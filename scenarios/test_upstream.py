"""Would catch an upgrade of TensorFlow or Keras that does away with one of its faults.

Each is shown alone by a file of docs/upstream; here the bench finds it in what a user
would bring. The tests are expected to fail, strictly: one that passes says that an
entry, and what the bench knows of it, is out of date. Of some the framework's authors
know: https://github.com/keras-team/keras/issues/20585 has `fit` on workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from distbench.errors import ClusterError
from distbench.verdict import Status

pytestmark = pytest.mark.nightly
UPSTREAM = Path(__file__).parents[1] / "docs" / "upstream"
CONTROLLED = "framework"


class StillWrongError(Exception):
    """The framework does what the entry says. Nothing else makes a test xfail."""


def shown_by(entry: str) -> pytest.MarkDecorator:
    assert (UPSTREAM / f"{entry}.py").is_file()
    return pytest.mark.xfail(
        strict=True, raises=StillWrongError, reason=f"docs/upstream/{entry}.py"
    )


@contextmanager
def may_end_with(words: str) -> Iterator[None]:
    """What runs on a cluster, which is due to end well and is ended by one fault."""
    try:
        yield
    except ClusterError as error:
        if words not in str(error):
            raise
        raise StillWrongError(str(error)) from error


@pytest.fixture
def expect_fault(check: Callable) -> Callable:
    """Runs the scenario, which is due to pass and shows one known fault instead."""

    def run(code: str, phase: str, **options) -> None:
        verdict = check(**options)
        if verdict:
            return
        first = verdict.findings[0]
        assert (first.code, first.phase, first.origin) == (code, phase, CONTROLLED)
        raise StillWrongError(first.explanation)

    return run


@pytest.fixture
def expect_warning(check: Callable) -> Callable:
    """Runs the scenario, which passes with a warning of one known fault."""

    def run(code: str, phase: str, **options) -> None:
        verdict = check(**options)
        verdict.raise_for_status()
        if not verdict.findings:
            return
        (found,) = verdict.findings
        assert (found.code, found.phase, found.origin) == (code, phase, CONTROLLED)
        raise StillWrongError(found.explanation)

    return run


@pytest.fixture
def expect_refusal(check: Callable) -> Callable:
    """Runs the scenario, which is due to pass and is refused by the framework."""

    def run(words: str, **options) -> None:
        verdict = check(**options)
        if verdict:
            return
        (run,) = verdict.runs
        assert run.status is Status.REFUSED
        assert words in run.message
        raise StillWrongError(run.message)

    return run


@pytest.fixture
def expect_note(check: Callable) -> Callable:
    """Runs the scenario, which passes with a note on repeated rows."""

    def run(**options) -> None:
        verdict = check(**options)
        verdict.raise_for_status()
        message = verdict.runs[0].message
        if "if the repeated rows of a sparse gradient" in message:
            raise StillWrongError(message)

    return run


@shown_by("keras3_clips_before_the_sum")
@pytest.mark.programs("upstream.py", "make_clipped", clusters=["mirrored:2"])
def test_clips_follow_the_sum(expect_fault):
    expect_fault(
        "clip-before-reduction", "reduced_gradient", workload="linear", tier="bounded"
    )


@shown_by("keras3_conditional_updates_raise")
@pytest.mark.programs(
    "upstream.py", "make_accumulating", clusters=["mirrored:2"], kinds=["mirrored"]
)
def test_gradients_are_accumulated_on_replicas(expect_fault):
    expect_fault("raises", "local_gradient", workload="linear", tier="bounded")


@shown_by("keras3_loss_scale_asks_one_replica")
@pytest.mark.programs(
    "upstream.py", "make_scaled", clusters=["mirrored:2"], kinds=["mirrored"]
)
def test_any_replica_makes_all_skip_a_step(expect_fault):
    expect_fault("nonfinite", "slot", workload="overflow", tier="bounded")


@shown_by("keras3_repeated_rows")
@pytest.mark.programs("upstream.py", "make_adam", clusters=["mirrored:2"])
def test_repeated_rows_are_added_up_before_the_rule(expect_note):
    expect_note(workload="embedding", tier="bounded")


@shown_by("clips_ignore_repeated_rows")
@pytest.mark.programs("upstream.py", "make_clipped_rows", clusters=["mirrored:2"])
def test_repeated_rows_are_added_up_before_a_clip(expect_note):
    expect_note(workload="embedding", tier="bounded")


@shown_by("v1_updates_once_per_replica")
@pytest.mark.programs(
    "upstream.py", "make_v1_sgd", clusters=["central:2"], kinds=["central"]
)
def test_a_shared_variable_is_updated_once(expect_fault):
    expect_fault(
        "update-repeated", "variable", workload="linear", tier="bounded", path="user"
    )


@shown_by("keras2_nadam_counts_while_tracing")
def test_a_step_does_not_depend_on_how_often_it_was_traced(distbench):
    once, twice = (distbench.run(train_nadam, "one", args=(n,)) for n in (1, 2))
    if once != twice:
        raise StillWrongError(f"traced once {once}, traced twice {twice}")


def train_nadam(traces: int) -> float:
    """A weight after four steps of one graph."""
    import tensorflow as tf
    import tf_keras

    variables = [tf.Variable(1.0), tf.Variable(1.0)]
    optimizer = tf_keras.optimizers.Nadam(0.125, jit_compile=False)
    optimizer.build(variables)

    def step() -> None:
        optimizer.apply_gradients([(tf.constant(1.0), v) for v in variables])

    for _ in range(traces - 1):
        tf.function(step).get_concrete_function()
    run = tf.function(step)
    for _ in range(4):
        run()
    return float(variables[0].numpy())


@shown_by("keras2_nadam_counts_while_tracing")
@pytest.mark.programs(
    "upstream.py", "make_nadam", clusters=["mirrored:2"], kinds=["mirrored"]
)
def test_a_step_is_counted_once_for_all_replicas(expect_fault):
    expect_fault("hyperparameter-differs", "slot")


@shown_by("fit_weighs_shards_alike")
@pytest.mark.programs(
    "upstream.py", "make_for_last_batch", clusters=["mirrored:2"], kinds=["mirrored"]
)
def test_a_batch_that_cannot_be_shared_evenly_counts_every_example_once(expect_fault):
    expect_fault("mean-of-means", "loss", split=(4, 3))


@shown_by("keras3_muon_decays_on_each_replica")
@pytest.mark.programs(
    "upstream.py", "make_muon", clusters=["central:2"], kinds=["central"]
)
def test_a_shared_variable_decays(expect_refusal):
    expect_refusal("specify an aggregation method", workload="linear", tier="bounded")


@shown_by("keras3_batch_statistics_drift_apart")
@pytest.mark.programs(
    "upstream.py", "make_normalised", clusters=["mirrored:2"], kinds=["mirrored"]
)
def test_averages_of_a_batch_are_those_of_all_replicas(expect_fault):
    expect_fault("statistics-not-synchronized", "variable")


@shown_by("keras3_float8_scales_drift_apart")
@pytest.mark.programs(
    "upstream.py", "make_float8", clusters=["mirrored:2"], kinds=["mirrored"]
)
def test_scales_of_float8_are_those_of_all_replicas(expect_fault):
    expect_fault("statistics-not-synchronized", "variable")


@shown_by("keras3_replicas_draw_alike")
@pytest.mark.programs(
    "upstream.py", "make_dropping", clusters=["mirrored:2"], kinds=["mirrored"]
)
def test_replicas_drop_other_units(expect_warning):
    expect_warning("randomness-shared", "loss")


@shown_by("keras3_fit_raises_on_workers")
@pytest.mark.programs("upstream.py", "make_dense", clusters=["mwms:2"], kinds=["mwms"])
def test_fit_trains_on_workers(expect_fault):
    expect_fault("raises", "first step")


@shown_by("keras3_scalar_loss_is_not_divided")
@pytest.mark.programs(
    "upstream.py", "make_scalar_loss", clusters=["mirrored:2"], kinds=["mirrored"]
)
def test_a_mean_is_divided_by_the_replicas(expect_fault):
    expect_fault("loss-not-scaled", "loss")


@shown_by("losses_divide_by_each_shards_mask")
@pytest.mark.programs(
    "upstream.py", "make_masked", clusters=["mirrored:2"], kinds=["mirrored"]
)
def test_every_word_counts_once(expect_fault):
    expect_fault("mean-of-means", "loss")


@shown_by("keras3_replicas_share_their_losses")
@pytest.mark.programs(
    "upstream.py", "make_sharing_losses", clusters=["mirrored:2"], kinds=["mirrored"]
)
def test_each_replica_has_its_layers_own_losses(expect_fault):
    expect_fault("unexplained", "loss")


@shown_by("keras3_steps_at_once_raise")
@pytest.mark.programs(
    "upstream.py", "make_several_steps", clusters=["mirrored:2"], kinds=["mirrored"]
)
def test_several_steps_are_taken_at_once(expect_fault):
    expect_fault("raises", "step")


@shown_by("shards_without_a_name_share_a_slot")
def test_shards_without_a_name_have_slots_of_their_own(distbench):
    found = distbench.run(train_shards, "one")["worker", 0]
    if found != 1.0:
        raise StillWrongError(found)


def train_shards() -> float | str:
    """The momentum of a shard after a step, or what became of it."""
    import tensorflow as tf
    import tf_keras

    shards = [tf.Variable(tf.zeros(2)) for _ in range(2)]
    whole = tf.__internal__.distribute.ShardedVariable(shards)
    optimizer = tf_keras.optimizers.legacy.SGD(1.0, momentum=0.5)
    try:
        optimizer.apply_gradients([(-tf.ones(2), shard) for shard in whole.variables])
    except RecursionError as error:
        return str(error)
    return float(optimizer.get_slot(shards[0], "momentum")[0])


@shown_by("slots_of_shards_are_not_restored")
def test_slots_of_shards_are_restored_when_they_are_made(distbench):
    found = distbench.run(restore_shards, "one")["worker", 0]
    if found != [-0.5, -0.5]:
        raise StillWrongError(f"{found}; due is -0.5")


def restore_shards() -> list[float]:
    """The momentum of two shards, saved as -1, after a step without a gradient."""
    import tempfile

    import tensorflow as tf
    import tf_keras

    def make():
        shards = [tf.Variable(tf.ones(2), name=f"rows/part_{i}") for i in range(2)]
        optimizer = tf_keras.optimizers.legacy.SGD(1.0, momentum=0.5)
        whole = tf.__internal__.distribute.ShardedVariable(shards)
        return shards, optimizer, tf.train.Checkpoint(rows=whole, optimizer=optimizer)

    shards, optimizer, checkpoint = make()
    optimizer.apply_gradients([(tf.ones(2), shard) for shard in shards])
    with tempfile.TemporaryDirectory() as folder:
        path = checkpoint.write(f"{folder}/saved")
        shards, optimizer, checkpoint = make()
        checkpoint.restore(path)
        optimizer.apply_gradients([(tf.zeros(2), shard) for shard in shards])
    return [float(optimizer.get_slot(shard, "momentum")[0]) for shard in shards]


@shown_by("second_strategy_forgets_its_peers")
def test_a_second_strategy_finds_its_peers(distbench):
    with may_end_with("Collective ops is aborted"):
        found = distbench.run(share_twice, "mwms:2", timeout_s=15)
    assert set(found.values()) == {2.0}


def share_twice() -> float:
    """A variable of a second strategy, which the first worker makes a second later."""
    import json
    import os
    import time

    import tensorflow as tf

    for is_second in (False, True):
        place = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
        if is_second and place == 0:
            time.sleep(1)
        with tf.distribute.MultiWorkerMirroredStrategy().scope():
            shared = tf.Variable(2.0)
    return float(shared.numpy())


@shown_by("gather_of_no_rows_ends_workers")
def test_workers_gather_no_rows(distbench):
    with may_end_with("SIGSEGV"):
        found = distbench.run(gather_no_rows, "mwms:2", timeout_s=30)
    assert set(found.values()) == {0}


def gather_no_rows() -> int:
    """How many rows come of none."""
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    @tf.function
    def step():
        def run():
            context = tf.distribute.get_replica_context()
            return context.all_gather(tf.zeros([0, 3]), axis=0)

        return strategy.run(run)

    return int(step().shape[0])


@shown_by("argument_of_a_step_is_not_summed")
def test_workers_gather_an_argument(distbench):
    with may_end_with("destinations can not be empty"):
        found = distbench.run(gather_an_argument, "mwms:2")
    assert set(found.values()) == {4}


def gather_an_argument() -> int:
    """How many labels come of two on each worker."""
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    @tf.function
    def step(labels):
        def run(own):
            return tf.distribute.get_replica_context().all_gather(own, axis=0)

        return strategy.run(run, args=(labels,))

    return int(step(tf.constant([1, 2])).shape[0])


def test_every_entry_has_its_scenario():
    source = Path(__file__).read_text("utf-8")
    # How a race between steps in flight ends is chance: no test can expect it.
    entries = {path.stem for path in UPSTREAM.glob("*.py")} - {
        "updates_read_before_they_write"
    }
    assert entries
    assert {name for name in entries if f'shown_by("{name}")' not in source} == set()
