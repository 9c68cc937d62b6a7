"""Further steps that are left out where a graph, or rounding, says what they would."""

from __future__ import annotations

import pytest

import distbench

pytestmark = pytest.mark.cluster


def _tell_handed_on(kind: str) -> bool:
    """Runs in a task: whether a graph says that a sum is what a tape gave."""
    import tensorflow as tf

    from distbench.worker.taps.handed_on import hands_on_as_given
    from distbench.worker.taps.seen import Seen

    @tf.custom_gradient
    def pass_on(value):
        return tf.identity(value), tf.identity

    hand = {
        "nothing": lambda given: None,
        "itself": lambda given: given,
        "by ops that pass it on": lambda given: pass_on(tf.identity(given)),
        "a clip": lambda given: tf.clip_by_norm(given, 1e6),
        "another's": lambda given: tf.ones_like(given),
    }[kind]
    seen = Seen()

    @tf.function
    def step(value):
        with tf.GradientTape() as tape:
            tape.watch(value)
            loss = tf.reduce_sum(value**2)
        given = tape.gradient(loss, value)
        seen.add_result(0, given)
        handed = hand(given)
        if handed is not None:
            seen.add_tapped(0, "reduced_gradient", [given, handed])
        return given

    step(tf.ones([3]))
    return hands_on_as_given(seen)


@pytest.mark.parametrize(
    ("kind", "is_told"),
    [
        ("nothing", False),
        ("itself", True),
        ("by ops that pass it on", True),
        ("a clip", False),
        ("another's", False),
    ],
)
def test_larger_gradients_are_not_tried_where_the_graph_tells(
    kind: str, is_told: bool
) -> None:
    assert list(distbench.run(_tell_handed_on, "one", args=(kind,)).values()) == [
        is_told
    ]


def _tell_decisions(asserts: str, decides: bool) -> bool:
    """Runs in a task: whether a step is to be watched for what it decides."""
    import tensorflow as tf

    from distbench.worker.taps.decisions import has_decisions

    kept = tf.Variable(0.0)

    def keep(value):
        kept.assign(value)
        return tf.constant(True)

    def assert_kept(value):
        is_kept = tf.cond(value[0] > 9, lambda: keep(1.0), lambda: keep(2.0))
        tf.debugging.Assert(is_kept, [value])

    def assert_finite(value):
        is_finite = tf.constant(True)
        for _ in range(1500):  # more than Python can recurse
            is_finite &= tf.reduce_all(tf.math.is_finite(value))
        tf.debugging.Assert(is_finite, [value])

    assert_it = {
        "nothing": lambda value: None,
        "shapes": lambda value: tf.debugging.assert_equal(
            tf.shape(value), tf.shape(value + 1)[:1]
        ),
        # It asserts in a branch of a condition.
        "numbers": lambda value: tf.debugging.assert_less(value, 1e6),
        "that a branch was taken": assert_kept,
        "that many are finite": assert_finite,
    }[asserts]

    @tf.function
    def step(value):
        assert_it(value)
        return tf.cond(tf.size(value) > 9, lambda: 1, lambda: 2) if decides else 1

    spec = tf.TensorSpec([None])
    return has_decisions(step.get_concrete_function(spec).graph)


@pytest.mark.parametrize(
    ("asserts", "decides", "is_told"),
    [
        ("nothing", False, False),
        ("nothing", True, True),
        ("shapes", False, False),
        ("shapes", True, True),
        ("numbers", False, False),
        ("numbers", True, True),
        ("that a branch was taken", False, True),
        ("that many are finite", False, False),
    ],
)
def test_what_is_only_asserted_decides_nothing(
    asserts: str, decides: bool, is_told: bool
) -> None:
    results = distbench.run(_tell_decisions, "one", args=(asserts, decides))
    assert list(results.values()) == [is_told]


def _tell_made_up(noise: float, is_permuted: bool) -> bool:
    """Runs in a task: whether shards make up a gradient of which terms cancel.

    Args:
        noise: By how much a twin has another one.
        is_permuted: Whether that twin has its examples in another order.
    """
    from functools import partial
    from types import SimpleNamespace

    import numpy as np

    from distbench.trace import Trace, TraceKey
    from distbench.worker.one_device.made_up import make_up
    from distbench.worker.one_device.twins import Twins

    def key(replica: int) -> TraceKey:
        return TraceKey(
            step=0, phase="local_gradient", variable="bias", replica=replica
        )

    def make_trace(values: dict[TraceKey, np.ndarray], **notes: object) -> Trace:
        return Trace(
            name="x",
            replicas=2,
            shards=(1, 1),
            variables=(),
            values=values,
            notes=notes,
        )

    whole = np.array([1e-9, -2e-9], np.float32)
    recorded = make_trace({key(-1): whole, key(0): 3 * whole, key(1): -0.5 * whole})
    twins = Twins(SimpleNamespace(repeats=True))
    moved = make_trace({key(-1): whole + np.float32(noise)}, permuted=is_permuted)
    twins._recorded["bounded"] = (moved,)
    margin = partial(twins.find_margin, "bounded")
    return make_up(recorded, {key(-1): whole}, (1, 1), "float32", margin)


@pytest.mark.parametrize(
    ("noise", "is_permuted", "is_made_up"),
    [(1e-9, False, True), (1e-11, False, False), (1e-9, True, False)],
)
def test_shards_need_not_make_up_what_is_rounding_alone(
    noise: float, is_permuted: bool, is_made_up: bool
) -> None:
    results = distbench.run(_tell_made_up, "one", args=(noise, is_permuted))
    assert list(results.values()) == [is_made_up]
