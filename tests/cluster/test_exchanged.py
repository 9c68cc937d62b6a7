"""What collectives give on one device, and what replicas keep back from them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from distbench.trace import Trace, TraceKey
from distbench.worker.one_device.kept_back import _find_added
from distbench.worker.taps.board import TapBoard
from distbench.worker.taps.exchanged import Exchanged

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("shape", [None, [4, 1]], ids=["open", "known"])
def test_slices_that_are_scaled_stay_slices(shape: list[int] | None) -> None:
    exchanged = Exchanged(TapBoard())

    @tf.function(autograph=False)
    def step():
        context = tf.distribute.get_replica_context()
        dense = None if shape is None else tf.constant(shape)
        rows, numbers = tf.constant([[1.0], [3.0]]), tf.constant([2, 0])
        found = context.all_reduce("sum", tf.IndexedSlices(rows, numbers, dense))
        # Its factor it has already.
        again = context.all_reduce("sum", found)
        assert isinstance(found, tf.IndexedSlices)
        return found.values, found.indices, again.values

    exchanged.set_factor(2.0)
    with exchanged.scale():
        values, indices, again = step()
    assert exchanged.has_scaled
    assert np.array_equal(values, [[2.0], [6.0]])
    assert np.array_equal(indices, [2, 0])
    assert np.array_equal(again, values)


def test_a_step_that_was_not_fed_proves_nothing_of_what_is_kept() -> None:
    """As one whose update a condition leaves out, which shows no gradients."""
    before = [{("kept", 0): np.float32(0.0)}] * 2
    starts = SimpleNamespace(list_whole={"bounded": before}.get)
    feeder = SimpleNamespace(reference=SimpleNamespace(starts=starts))

    def make_trace(*values: float) -> Trace:
        key = TraceKey(step=0, phase="variable", variable="kept", replica=0)
        return Trace(
            name="a",
            replicas=1,
            shards=(1,),
            variables=(),
            values={
                TraceKey(step=s, phase=key.phase, variable="kept", replica=0): np.array(
                    value, np.float32
                )
                for s, value in enumerate(values)
            },
        )

    def find(joined: Trace, steps: int) -> set[str]:
        seen = make_trace(1.0, 2.0)
        return _find_added(feeder, "bounded", seen, joined, {"kept"}, steps)

    assert find(make_trace(1.0), 1) == {"kept"}
    assert find(make_trace(1.0), 2) == set()
