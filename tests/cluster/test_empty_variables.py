"""A variable without elements: nothing to train, and more than TensorFlow bears."""

from __future__ import annotations

import pytest
import tensorflow as tf
from odd_programs import Regression

import distbench
from distbench.errors import ClusterError
from distbench.verdict import Status, describe_verdict

pytestmark = pytest.mark.cluster


class HasNoElements(Regression):
    """A part of the model that has been configured away."""

    def build(self, strategy):
        super().build(strategy)
        self.rest = tf.Variable(tf.zeros([0, 2]), name="rest")

    def variables(self):
        return [self.kernel, self.rest]


def test_one_process_trains_beside_it() -> None:
    verdict = distbench.check(HasNoElements, "mirrored:2", steps=1)
    assert verdict.status is Status.PASS, describe_verdict(verdict)


def test_between_workers_it_is_named_before_it_ends_their_processes() -> None:
    verdict = distbench.check(HasNoElements, "mwms:2", steps=1)
    (finding,) = verdict.findings
    assert finding.code == "raises"
    assert "A variable of shape (0, 2) has no elements" in finding.explanation
    assert 'name="rest"' in finding.explanation


def gather_nothing() -> None:
    """Rows of which no worker has any, such as the ids of a batch without words."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    @tf.function
    def gather():
        context = tf.distribute.get_replica_context()
        return context.all_gather(tf.zeros([0, 3]), axis=0)

    strategy.run(gather)


def test_workers_that_gather_no_rows_are_told_what_ended_them() -> None:
    with pytest.raises(ClusterError, match=r"killed by SIGSEGV.* no rows on any"):
        distbench.run(gather_nothing, "mwms:2")
