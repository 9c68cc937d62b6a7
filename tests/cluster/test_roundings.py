"""How often a traced step rounds what replicas hand over on its way to a sum."""

from __future__ import annotations

import pytest

import distbench

pytestmark = pytest.mark.cluster


def _count(kind: str) -> int:
    """Runs in a task: what a graph says."""
    import tensorflow as tf

    from distbench.worker.taps.handed_on import count_roundings
    from distbench.worker.taps.seen import Seen

    def add_up(part):
        return tf.distribute.get_replica_context().all_reduce("SUM", part)

    @tf.function
    def divide(given):
        tf.print(tf.norm(given))  # which is made of what it returns, not the other way
        return given / 10.0

    def divide_small(given):
        is_large = tf.cast(tf.norm(given) > 1e6, tf.int32)
        return tf.switch_case(is_large, [lambda: given / 10.0, lambda: given])

    def guard(total):
        norm = tf.sqrt(sum(tf.unstack(total**2)))
        return tf.where(norm < 1e6, total, tf.zeros_like(total))

    hand = {
        "summed": add_up,
        "left out if large": lambda given: guard(add_up(given)),
        "by powers of two": lambda given: add_up(given * 1024.0) / 1024.0,
        "divided before": lambda given: add_up(given / 10.0) * 10.0,
        "divided in a function": lambda given: add_up(divide(given)) * 10.0,
        "divided in a branch": lambda given: add_up(divide_small(given)) * 10.0,
        "added to": lambda given: add_up(given + 0.1),
        "joined": lambda given: add_up(tf.concat([given, -given], axis=0))[:3],
        "inverted twice": lambda given: add_up(1.0 / (1.0 / given)),
        "of others": lambda given: tf.ones_like(given) / 3.0,
    }[kind]
    seen, sums = Seen(), {}

    def step(value):
        with tf.GradientTape() as tape:
            tape.watch(value)
            loss = tf.reduce_sum(value**2)
        given = tape.gradient(loss, value)
        # What is added up before it is handed over rounds no sum.
        given = given + value
        seen.add_tapped(0, "local_gradient", [given])
        sums["value"] = [hand(given)]
        return sums["value"][0]

    strategy = tf.distribute.get_strategy()
    tf.function(lambda: strategy.run(step, (tf.ones([3]),)))()
    return count_roundings(seen, sums).get("value", 0)


@pytest.mark.parametrize("cluster", ["mirrored:2", "mwms:2"])
@pytest.mark.parametrize(
    ("kind", "count"),
    [
        ("summed", 0),
        # What decides over a number rounds none.
        ("left out if large", 0),
        ("by powers of two", 0),
        ("divided before", 4),
        ("divided in a function", 4),
        ("divided in a branch", 4),
        ("added to", 1),
        ("joined", 0),
        ("of others", 0),
        ("inverted twice", 4),
    ],
)
def test_a_graph_tells_how_often_a_gradient_is_rounded(
    cluster: str, kind: str, count: int
) -> None:
    assert set(distbench.run(_count, cluster, args=(kind,)).values()) == {count}


def test_a_function_is_gone_through_once_for_all_that_it_gives(monkeypatch) -> None:
    """However deep functions lie in each other, and wherever they are called."""
    import tensorflow as tf

    from distbench.worker.state.graphs import list_ops
    from distbench.worker.taps.backwards import Backwards
    from distbench.worker.taps.handed_on import count_roundings
    from distbench.worker.taps.seen import Seen

    clip = tf.function(lambda *given: tuple(tf.clip_by_global_norm(given, 1.0)[0]))
    twice = tf.function(lambda *given: clip(*clip(*given)))
    four_times = tf.function(lambda *given: twice(*twice(*given)))
    graph = four_times.get_concrete_function(*[tf.TensorSpec([3])] * 4).graph
    seen, gone = Seen(), []
    seen.add_tapped(0, "local_gradient", graph.inputs)
    list_sources = Backwards.list_sources

    def count(backwards: Backwards, tensor: tf.Tensor) -> list[tf.Tensor]:
        gone.append(tensor)
        return list_sources(backwards, tensor)

    monkeypatch.setattr(Backwards, "list_sources", count)
    sums = {f"value/{place}": [made] for place, made in enumerate(graph.outputs)}
    counts = count_roundings(seen, sums)
    assert len(counts) == 4
    assert len(set(counts.values())) == 1
    assert len(gone) <= sum(len(op.outputs) for op in list_ops(graph))
