"""Nobody calls a peer that does not listen yet: gRPC tries again after a second."""

from __future__ import annotations

import pytest

import distbench

pytestmark = pytest.mark.cluster


def _wait_for_one_who_comes(comes: bool) -> bool:
    """Runs in a task: somebody listens once they have been waited for, or never."""
    import socket

    from distbench.worker.process import joining

    with socket.socket() as late:
        late.bind(("127.0.0.1", 0))

        def sleep(seconds: float) -> None:
            assert seconds > 0
            if comes:
                late.listen()

        joining.time.sleep = sleep
        host, port = late.getsockname()
        return joining.wait_until_listening(iter([f"{host}:{port}"]), 0.2)


@pytest.mark.parametrize("comes", [True, False])
def test_the_wait_ends_when_somebody_listens_or_its_time_is_over(comes: bool) -> None:
    answers = distbench.run(_wait_for_one_who_comes, "one", args=(comes,))
    assert list(answers.values()) == [comes]


def _list_awaited(kind: str) -> tuple[list[str], list[str]]:
    """Runs in a task: whom it waits for as it joins its cluster, and who there is."""
    import json
    import os

    import tensorflow as tf

    from distbench.worker.process import joining

    awaited = []

    def note(addresses, timeout_s):
        awaited.extend(addresses)
        return wait(iter(awaited), timeout_s)

    wait, joining.wait_until_listening = joining.wait_until_listening, note
    config = json.loads(os.environ["TF_CONFIG"])
    cluster = config["cluster"]
    if kind == "mwms":
        tf.distribute.MultiWorkerMirroredStrategy()
    elif config["task"]["type"] == "chief":
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        tf.distribute.ParameterServerStrategy(resolver)
    return sorted(awaited), sorted(a for role in cluster.values() for a in role)


def test_workers_wait_for_their_leader() -> None:
    answers = distbench.run(_list_awaited, "mwms:2", args=("mwms",))
    (leader, everyone), (follower, _) = (answers["worker", n] for n in (0, 1))
    assert leader == []
    assert len(follower) == 1
    assert follower[0] in everyone


def test_a_chief_waits_for_everybody_else() -> None:
    answers = distbench.run(_list_awaited, "ps:1+1", args=("ps",))
    awaited, everyone = answers["chief", 0]
    assert len(awaited) == 2
    assert set(awaited) < set(everyone)


def _sum_over_workers() -> float:
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    def add() -> tf.Tensor:
        return tf.distribute.get_replica_context().all_reduce("sum", 1.0)

    return float(strategy.run(tf.function(add)))


def test_no_proxy_comes_between_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorFlow alone would wait for ever where `http_proxy` is set."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # nobody listens there
    answers = distbench.run(_sum_over_workers, "mwms:2", timeout_s=30)
    assert list(answers.values()) == [2.0, 2.0]
