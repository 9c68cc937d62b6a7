"""How often a step is traced, and where once is enough."""

from __future__ import annotations

from pathlib import Path

import pytest

import distbench

pytestmark = pytest.mark.cluster
MODELS = Path(__file__).with_name("keras_models.py")


def _count_traces(name: str) -> tuple[int, int]:
    """Runs in a task: traces of a model's train function, prepared and after `fit`."""
    from in_task import open_session, open_strategy

    from distbench.scenario import Scenario
    from distbench.scenario.choices import MODEL
    from distbench.target import parse_target
    from distbench.target.loading import load_target
    from distbench.worker.subjects.fit_steps import find_traced
    from distbench.worker.subjects.kinds import make_program

    spec, strategy = open_strategy("mirrored:2@cpu")
    scenario = Scenario(target=name, workload=MODEL, cluster="mirrored:2")
    program = make_program(load_target(parse_target(f"{MODELS}:{name}")), scenario)
    session, shards = open_session(program, scenario, strategy, spec)
    step = session.make_step()
    session.prepare(step, shards)
    traced = find_traced(step._function)
    prepared = traced.experimental_get_tracing_count()
    session.run(step, shards)
    return prepared, traced.experimental_get_tracing_count()


@pytest.mark.parametrize("name", ["make_dense", "make_keras3"])
def test_fit_runs_the_function_that_was_prepared(name: str) -> None:
    results = distbench.run(_count_traces, "one", args=(name,))
    ((prepared, ran),) = results.values()
    assert ran == prepared > 0


def _asks_whose(file: str, module: str) -> bool:
    """Runs in a task: whether code of a file is taken for the user's."""
    from distbench.worker.stepping.at_once import _is_users

    names = {"__name__": module}
    exec(compile("import sys\nframe = sys._getframe()", file, "exec"), names)
    return _is_users(names["frame"])


def test_a_users_module_may_have_the_name_of_one_of_pythons() -> None:
    results = distbench.run(_asks_whose, "one", args=("/home/me/profile.py", "profile"))
    assert list(results.values()) == [True]


def _count_step_traces(cluster: str) -> dict[str, tuple[int, list[bool]]]:
    """Runs in a task: by optimizer, traces of its step, and what its own code saw."""
    import tensorflow as tf
    import tf_keras
    from in_task import open_session, open_strategy

    from distbench.scenario import Scenario
    from distbench.worker.subjects.kinds import make_program

    seen: list[bool] = []

    class LooksForItsSlots(tf_keras.optimizers.SGD):
        def apply_gradients(self, grads_and_vars, name=None):
            seen.append(bool(getattr(self, "momentums", None)))
            return super().apply_gradients(grads_and_vars, name)

    class LooksBeforeTheMerge(tf.compat.v1.train.MomentumOptimizer):
        """Makes its slots in another thread than that of the replica."""

        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            seen.append(bool(self.get_slot_names()))
            return super().apply_gradients(grads_and_vars, global_step, name)

    class HasLeftItsCode(tf_keras.optimizers.SGD):
        """Its slots are made after; then other replicas may still wait in it."""

        def aggregate_gradients(self, grads_and_vars):
            return list(super().aggregate_gradients(grads_and_vars))

    spec, strategy = open_strategy(cluster)
    kinds = {
        "own": LooksForItsSlots,
        "own v1": LooksBeforeTheMerge,
        "own sum": HasLeftItsCode,
        "v1": tf.compat.v1.train.MomentumOptimizer,
        "keras2": tf_keras.optimizers.SGD,
        "legacy": tf_keras.optimizers.legacy.SGD,
    }
    counts = {}
    for name, kind in kinds.items():
        scenario = Scenario(target=name, workload="linear", cluster=cluster)
        program = make_program(lambda kind=kind: kind(0.1, momentum=0.5), scenario)
        session, shards = open_session(program, scenario, strategy, spec)
        step = session.make_step()
        session.prepare(step, shards)
        session.run(step, shards)
        counts[name] = step._function.experimental_get_tracing_count(), list(seen)
        seen.clear()
    return counts


@pytest.mark.parametrize("cluster", ["one@cpu", "mirrored:2@cpu", "central:2@cpu"])
def test_a_step_is_traced_again_only_where_that_may_matter(cluster: str) -> None:
    """What the user wrote may do another thing where it finds its variables made."""
    (counts,) = distbench.run(_count_step_traces, "one", args=(cluster,)).values()
    for name in ("own sum", "keras2", "legacy", "v1"):
        assert counts[name] == (1, [])
    for name in ("own", "own v1"):
        traces, seen = counts[name]
        assert traces == 2
        # The last trace is the one that runs.
        assert not seen[0]
        assert seen[-1]


def _count_fit_traces(cluster: str) -> dict[str, tuple[int, list[bool]]]:
    """Runs in a task: by model, traces of its train function, and what its step saw."""
    import numpy as np
    import tf_keras
    from in_task import open_session, open_strategy

    from distbench.scenario import Scenario
    from distbench.scenario.choices import MODEL
    from distbench.worker.subjects.fit_steps import find_traced
    from distbench.worker.subjects.kinds import make_program

    seen: list[bool] = []

    class LooksForItsSlots(tf_keras.Sequential):
        def train_step(self, data):
            seen.append(bool(getattr(self.optimizer, "momentums", None)))
            return super().train_step(data)

    def draw(step):
        rng = np.random.default_rng(step)
        return rng.normal(size=(8, 3)).astype("float32"), np.ones((8, 1), "float32")

    spec, strategy = open_strategy(cluster)
    counts = {}
    for name, kind in {"stock": tf_keras.Sequential, "own": LooksForItsSlots}.items():

        def make(kind=kind):
            # What a step has to build first is traced for that alone.
            layers = tf_keras.layers
            model = kind(
                [layers.Input((3,)), layers.Dense(1), layers.BatchNormalization()]
            )
            model.compile(tf_keras.optimizers.SGD(0.1, momentum=0.5), "mse")
            return model

        make.data = draw
        scenario = Scenario(target=name, workload=MODEL, cluster=cluster)
        program = make_program(make, scenario)
        session, shards = open_session(program, scenario, strategy, spec)
        step = session.make_step()
        session.prepare(step, shards)
        session.run(step, shards)
        traced = find_traced(step._function)
        counts[name] = traced.experimental_get_tracing_count(), list(seen)
    return counts


@pytest.mark.parametrize("cluster", ["one@cpu", "mirrored:2@cpu"])
def test_a_model_is_traced_again_only_where_that_may_matter(cluster: str) -> None:
    (counts,) = distbench.run(_count_fit_traces, "one", args=(cluster,)).values()
    assert counts["stock"] == (1, [])
    traces, seen = counts["own"]
    assert traces == 2
    assert not seen[0]
    assert seen[-1]


def _find_open_steps() -> dict[str, bool]:
    """Runs in a task: by program, whether one trace takes its shards of all sizes."""
    import numpy as np
    import tensorflow as tf
    from in_task import open_session, open_strategy

    from distbench.scenario import Scenario
    from distbench.scenario.choices import PROGRAM
    from distbench.worker.one_device.reference import Reference
    from distbench.worker.subjects.user_program import UserProgram

    class Weighed:
        def __init__(self, weigh, count=lambda x: 1):
            self.weigh = weigh
            self.count = count

        def build(self, strategy):
            # Of the first column nothing but rounding has a gradient.
            self.kernel = tf.Variable(tf.ones([3, 1]), name="kernel")
            self.seen = tf.Variable(0.0, trainable=False, name="seen")

        def replica_step(self, x):
            with tf.GradientTape() as tape:
                scores = tf.nn.softmax(x @ self.kernel + self.kernel[0, 0], axis=0)
                loss = tf.reduce_sum(scores * x) * self.weigh(x)
            (gradient,) = tape.gradient(loss, [self.kernel])
            context = tf.distribute.get_replica_context()
            total = context.all_reduce("sum", gradient)
            self.kernel.assign_sub(0.1 * total)
            self.seen.assign_add(self.count(x))
            return loss

        def variables(self):
            return [self.kernel, self.seen]

        def optimizer(self):
            return ()

        def data(self, step):
            return np.random.default_rng(step).normal(size=(16, 3)).astype("float32")

    programs = {
        "a constant": Weighed(lambda x: 1 / 16),
        "a static size or another": Weighed(lambda x: 1 / (x.shape[0] or 16)),
        "a static size": Weighed(lambda x: 1 / x.shape[0]),
        "a random number": Weighed(lambda x: tf.random.uniform([], 1.0, 1.5)),
        "counts by it": Weighed(lambda x: 1 / 16, lambda x: float(x.shape[0] or 0)),
    }
    spec, strategy = open_strategy("one@cpu")
    found = {}
    for name, weighed in programs.items():
        scenario = Scenario(target="x", workload=PROGRAM, cluster="mirrored:2")
        program = UserProgram(weighed)
        session, _ = open_session(program, scenario, strategy, spec)
        found[name] = Reference(session, scenario, 2).shard_step.any_size
    return found


def test_shards_share_a_trace_where_the_program_does_not_mind() -> None:
    (found,) = distbench.run(_find_open_steps, "one").values()
    assert found == {
        "a constant": True,
        "a static size or another": False,
        "a static size": False,
        "a random number": False,
        "counts by it": False,
    }


def _list_frames_amid_garbage() -> int:
    """Runs in a task: the collector is due in the middle of reading the threads."""
    import gc
    import threading

    from distbench.worker.stepping.at_once import _list_frames

    class Loop:
        def __init__(self) -> None:
            self.loop, self.local = self, threading.local()
            self.local.used = True

    found = 0
    # Nobody knows how many objects are made before those that stand for the threads,
    # and these are made once for each.
    for further in range(40):
        ended = threading.Event()
        threads = [threading.Thread(target=ended.wait) for _ in range(10)]
        for thread in threads:
            thread.start()
        gc.collect()
        gc.disable()
        Loop()
        gc.set_threshold(gc.get_count()[0] + further)
        gc.enable()
        found += len(list(_list_frames(None)))
        ended.set()
        for thread in threads:
            thread.join()
    assert gc.isenabled()
    return found


def test_threads_are_read_while_the_collector_rests() -> None:
    """It would wait for a lock that the reader holds, up to Python 3.11."""
    (found,) = distbench.run(_list_frames_amid_garbage, "one", timeout_s=30).values()
    assert found > 0
