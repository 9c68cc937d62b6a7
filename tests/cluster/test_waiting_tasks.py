"""Functions in tasks that waited: fresh ones, of the cluster that is wanted."""

from __future__ import annotations

import json
import os

import pytest

import distbench

pytestmark = pytest.mark.cluster


def read_place():
    config = json.loads(os.environ.get("TF_CONFIG", "{}"))
    return config.get("task"), sorted(config.get("cluster", {}))


class Counted:
    """What a function leaves in its process."""

    calls = 0


def count_and_sum(rows):
    import tensorflow as tf

    Counted.calls += 1
    strategy = tf.distribute.get_strategy()
    if "TF_CONFIG" in os.environ:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()

    @tf.function
    def step():
        def give():
            context = tf.distribute.get_replica_context()
            return context.all_reduce("sum", tf.ones([rows, 3]))

        return strategy.experimental_local_results(strategy.run(give))[0]

    return os.getpid(), Counted.calls, step().shape.as_list(), float(step()[0, 0])


@pytest.mark.parametrize("cluster", ["one", "mwms:2"])
def test_tasks_that_waited_are_fresh(cluster: str) -> None:
    pids: set[int] = set()
    with distbench.Spares() as spares:
        # Not the shapes of the step that those that wait have taken.
        for rows in (2, 1, 4):
            waiting = [p for g in spares.list_waiting() for p in g.pids.values()]
            found = distbench.run(count_and_sum, cluster, args=(rows,), spares=spares)
            own = {pid for pid, *_ in found.values()}
            assert own == (set(waiting) if rows != 2 else own)
            assert pids.isdisjoint(own)
            pids |= own
            assert {tuple(map(str, told)) for _, *told in found.values()} == {
                ("1", str([rows, 3]), str(float(len(found))))
            }
            assert not list(spares.list_waiting())
            spares.fill()
        # Nobody waits under another environment, or with another seed.
        distbench.run(count_and_sum, cluster, args=(1,), seed=2, spares=spares)
        (left,) = spares.list_waiting()
    assert left.closed


def share_a_variable():
    """The leader of the collectives comes when the other worker has asked for it."""
    import time

    import tensorflow as tf

    if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 0:
        time.sleep(0.5)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        return float(tf.Variable(2.0).numpy())


def test_nobody_is_forgotten_by_a_leader_that_waited() -> None:
    with distbench.Spares() as spares:
        distbench.run(share_a_variable, "mwms:2", spares=spares)
        spares.fill()
        found = distbench.run(share_a_variable, "mwms:2", spares=spares, timeout_s=30)
    assert set(found.values()) == {2.0}


@pytest.mark.parametrize("cluster", ["mirrored:2", "central:2", "ps:2+1"])
def test_whatever_waits_runs_a_function(cluster: str) -> None:
    with distbench.Spares() as spares:
        first = distbench.run(read_place, cluster, spares=spares)
        spares.fill()
        assert len(list(spares.list_waiting())) == 1
        again = distbench.run(read_place, cluster, spares=spares)
        assert not list(spares.list_waiting())
    assert again == first
