"""Which worker takes a step that a coordinator schedules."""

from __future__ import annotations

import pytest

import distbench

pytestmark = pytest.mark.cluster
WORKERS, STEPS, MORE = 3, 7, 6


def take_turns(keeps_one_busy: bool):
    """On the chief: steps in turn, and closures that are for whoever is free.

    Args:
        keeps_one_busy: Whether a worker does not come for more meanwhile, as a dead one
            does not.

    Returns:
        The worker of each step, by itself and as it was noted, and those of closures.
    """
    import os
    import threading

    import tensorflow as tf

    from distbench.worker.stepping import turns as module

    if '"type": "chief"' not in os.environ["TF_CONFIG"]:
        return None
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    turns = module.Turns.find(coordinator)
    assert module.Turns.find(coordinator) is turns

    @tf.function
    def tell_worker():
        return tf.distribute.coordinator.experimental_get_current_worker_index()

    begun, held = threading.Event(), threading.Event()

    def keep_busy():
        begun.set()
        held.wait(60)

    if keeps_one_busy:
        module._PATIENCE_S = 0.1
        coordinator._cluster.schedule(keep_busy, args=(), kwargs={})
        begun.wait(60)
    own, noted, results = [], [], []

    def schedule(function, args):
        results.append(coordinator.schedule(function, args=args))

    for step in range(STEPS):
        turns.schedule(step, schedule, tell_worker, ())
        own.append(int(results.pop().fetch()))
        noted.append(turns.taken_by)
    held.set()
    results = [coordinator.schedule(tell_worker) for _ in range(MORE)]
    coordinator.join()
    return own, noted, [int(result.fetch()) for result in results]


def run(*, keeps_one_busy: bool):
    found = distbench.run(take_turns, cluster=f"ps:{WORKERS}+1", args=(keeps_one_busy,))
    [seen] = [found[task] for task in found if task[0] == "chief"]
    return seen


def test_workers_take_steps_in_turn_and_all_else_as_they_are_free() -> None:
    own, noted, others = run(keeps_one_busy=False)
    assert own == noted == [step % WORKERS for step in range(STEPS)]
    assert len(others) == MORE
    assert set(others) <= set(range(WORKERS))


def test_the_turn_of_a_worker_that_does_not_come_is_another_ones() -> None:
    own, noted, others = run(keeps_one_busy=True)
    assert own == noted
    busy = set(range(WORKERS)) - set(own)
    assert len(busy) == 1
    kept = [worker for step, worker in enumerate(own) if step % WORKERS not in busy]
    assert kept == [s % WORKERS for s in range(STEPS) if s % WORKERS not in busy]
    assert len(others) == MORE
