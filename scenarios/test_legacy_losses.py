"""Would catch losses of Keras that are reduced over a replica's own batch.

https://github.com/OpenNMT/OpenNMT-tf/issues/526: the default reduction is an error
under a strategy, outside of `fit`. What to divide by, and how the replicas' losses
combine: https://github.com/tensorflow/tensorflow/issues/28956.
"""

from __future__ import annotations

import pytest


@pytest.mark.programs("losses.py", "SumOverGlobalBatch", "Unreduced")
def test_a_sum_over_the_global_batch_agrees(check):
    check().raise_for_status()


@pytest.mark.programs("losses.py", "SumOverOwnBatch", "MeanOfOwnBatch")
def test_a_mean_over_the_own_batch_is_found(diagnose):
    first = diagnose()[0]
    assert (first.code, first.phase) == ("loss-not-scaled", "loss")


@pytest.mark.programs("losses.py", "GlobalBatchGuessed")
def test_a_global_batch_guessed_from_the_own_is_found(diagnose):
    first = diagnose()[0]
    assert (first.code, first.phase) == ("mean-of-means", "loss")


@pytest.mark.programs("losses.py", "Automatic", "OverBatchSize")
def test_a_reduction_that_keras_refuses_raises(diagnose):
    (finding,) = diagnose()
    assert (finding.code, finding.phase) == ("raises", "loss")
    assert "use `tf.keras.losses.Reduction.SUM`" in finding.explanation
