"""What fails when a step runs is told of the replica, and the phase, of its op."""

from __future__ import annotations

import pytest

import distbench
from distbench.samples.lazy import tf
from distbench.samples.program import Program
from distbench.samples.replicas import count_replicas

pytestmark = pytest.mark.cluster


def raise_too_large(value):
    """Raises when it runs, on a cluster alone."""
    limit = 1e-9 if count_replicas() > 1 else 1e9
    check = tf.debugging.assert_less(tf.norm(value), limit, message="too large")
    with tf.control_dependencies([check]):
        return tf.identity(value)


class OnTheFirstReplica(Program):
    """The first replica's gradient of a kernel is said to be too large."""

    of = 0

    def transform(self, gradients):
        context = tf.distribute.get_replica_context()
        if int(tf.get_static_value(context.replica_id_in_sync_group)) == self.of:
            gradients[1] = raise_too_large(gradients[1])
        return gradients


class OnTheSecondReplica(OnTheFirstReplica):
    """It is that of the second."""

    of = 1


class AfterTheUpdate(Program):
    """The loss is, once the variables are updated."""

    def report(self, loss):
        context = tf.distribute.get_replica_context()
        if int(tf.get_static_value(context.replica_id_in_sync_group)) == 1:
            loss = raise_too_large(loss)
        return loss


class InABranch(OnTheSecondReplica):
    """The assertion is in a branch of a condition."""

    def transform(self, gradients):
        gradients = [tf.convert_to_tensor(g) for g in gradients]
        raising = super().transform
        return tf.cond(
            tf.reduce_sum(gradients[-1]) < 1e9,
            lambda: raising(list(gradients)),
            lambda: list(gradients),
        )


class Together(Program):
    """The replicas' sum is, in a reduction by hand: it is of none of them."""

    def transform(self, gradients):
        if count_replicas() == 1:
            return gradients

        def look(strategy, value):
            total = strategy.reduce("SUM", value, axis=None)
            return raise_too_large(total)

        context = tf.distribute.get_replica_context()
        total = context.merge_call(look, args=(gradients[1],))
        with tf.control_dependencies([total]):
            return [tf.convert_to_tensor(g) for g in gradients]


@pytest.mark.parametrize(
    ("program", "phase", "replicas"),
    [
        (OnTheFirstReplica, "local_gradient", (0,)),
        (OnTheSecondReplica, "local_gradient", (1,)),
        (AfterTheUpdate, "applied_gradient", (1,)),
        (InABranch, "local_gradient", (1,)),
        (Together, "step", ()),
    ],
)
def test_it_is_found_in_the_graph_of_all_replicas(program, phase, replicas) -> None:
    check_place(program, "mirrored:2", phase, replicas)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("program", "phase"),
    [(OnTheSecondReplica, "local_gradient"), (AfterTheUpdate, "applied_gradient")],
)
def test_of_a_worker_with_one_replica_it_is_that_one(program, phase) -> None:
    check_place(program, "mwms:2", phase, (1,))


def check_place(program, cluster, phase, replicas) -> None:
    """One finding, with these."""
    (run,) = distbench.check(program, cluster, tier="bounded").runs
    (finding,) = run.findings
    found = finding.code, finding.phase, finding.replicas
    assert found == ("raises", phase, replicas), finding.explanation
    assert "raised InvalidArgumentError: assertion failed" in finding.explanation
    assert "test_failed_op.py" in finding.explanation


class OfUnevenShards(Program):
    """An assertion holds of even shards, and of one device."""

    def compute_losses(self, batch):
        tf.debugging.assert_equal(tf.shape(batch[1])[0] * count_replicas(), 22)
        return super().compute_losses(batch)


@pytest.mark.parametrize(
    ("program", "told"), [(OfUnevenShards, True), (OnTheFirstReplica, False)]
)
def test_even_shards_are_named_where_nothing_raises_on_them(program, told) -> None:
    (run,) = distbench.check(program, "mirrored:2", tier="bounded").runs
    words = "With even shards, as 'split=(11, 11)' makes them, it does not"
    assert (words in run.findings[0].explanation) == told
