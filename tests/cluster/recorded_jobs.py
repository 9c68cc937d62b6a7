"""Jobs as users run them: a model, a strategy and a loop, in a process of their own.

`python recorded_jobs.py DEVICES FOLDER JOB...` runs each job twice, as it is and inside
of `distbench.record`, and prints a digest of what each came to.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import sys
import warnings
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
import tf_keras

STEPS = 3
EXAMPLES = 8

OPTIMIZERS = {
    "legacy": lambda: tf_keras.optimizers.legacy.Adam(0.01),
    "keras2": lambda: tf_keras.optimizers.Adam(0.01),
    "keras3": lambda: keras.optimizers.Adam(0.01),
    "v1": lambda: tf.compat.v1.train.MomentumOptimizer(0.01, 0.9),
    "scaled": lambda: tf_keras.mixed_precision.LossScaleOptimizer(
        tf_keras.optimizers.legacy.Adam(0.01)
    ),
}


class Noisy(tf_keras.optimizers.legacy.SGD):
    """Draws after the first tap has seen its argument."""

    def apply_gradients(self, grads_and_vars, name=None, **kwargs):
        pairs = [(g + 0.1 * tf.random.normal(g.shape), v) for g, v in grads_and_vars]
        return super().apply_gradients(pairs, name, **kwargs)


OPTIMIZERS["noisy"] = lambda: Noisy(0.01)


def make_strategy(replicas: int):
    if replicas == 1:
        return tf.distribute.get_strategy()
    return tf.distribute.MirroredStrategy([f"CPU:{n}" for n in range(replicas)])


def read_batch(step: int):
    rng = np.random.default_rng(step)
    inputs = rng.normal(size=(EXAMPLES, 4)).astype(np.float32)
    return inputs, rng.normal(size=(EXAMPLES, 1)).astype(np.float32)


class Job:
    """A regression with two layers."""

    def __init__(self, strategy, family: str = "legacy", fault: str = "") -> None:
        package = keras if family == "keras3" else tf_keras
        package.utils.set_random_seed(7)
        tf_keras.backend.clear_session()
        keras.backend.clear_session()
        self.strategy, self.fault = strategy, fault
        self.replicas = strategy.num_replicas_in_sync
        with strategy.scope():
            layers = package.layers
            self.model = package.Sequential(
                [
                    layers.Input((4,)),
                    layers.Dense(5, activation="tanh"),
                    layers.Dense(1),
                ]
            )
            self.optimizer = OPTIMIZERS[family]()
            if family == "keras3":
                self.optimizer.build(self.model.trainable_variables)
        self.train = tf.function(self.step_all)

    def step_all(self, batch):
        return self.strategy.run(self.step, args=(batch,))

    def step(self, batch):
        inputs, targets = batch
        variables = self.model.trainable_variables
        with tf.GradientTape() as tape:
            error = self.model(inputs, training=True) - targets
            share = tf.reduce_sum(error**2) / EXAMPLES
            if self.fault == "own-mean":
                share = tf.reduce_mean(error**2)
            loss = share
            if hasattr(self.optimizer, "get_scaled_loss"):
                loss = self.optimizer.get_scaled_loss(share)
        gradients = tape.gradient(loss, variables)
        if hasattr(self.optimizer, "get_scaled_loss"):
            gradients = self.optimizer.get_unscaled_gradients(gradients)
        options = {}
        if self.fault in ("mean", "own-mean"):
            context = tf.distribute.get_replica_context()
            gradients = context.all_reduce("mean", gradients)
        if self.fault:
            options["experimental_aggregate_gradients"] = False
        self.optimizer.apply_gradients(
            zip(gradients, variables, strict=True), **options
        )
        return share

    def shard(self, batch):
        if self.replicas == 1:
            return tf.nest.map_structure(tf.constant, batch)

        def pick(context):
            number = context.replica_id_in_sync_group
            size = EXAMPLES // self.replicas
            return tf.nest.map_structure(
                lambda a: tf.constant(a[number * size :][:size]), batch
            )

        return self.strategy.experimental_distribute_values_from_function(pick)

    def loop(self, recorder=None, steps: int = STEPS) -> None:
        for step in range(steps):
            losses = self.train(self.shard(read_batch(step)))
            if recorder is not None:
                recorder.loss(self.strategy.reduce("sum", losses, axis=None))
                recorder.loss(losses, "share")

    def digest(self) -> str:
        held = [*self.model.variables, *_list_slots(self.optimizer)]
        parts = [
            np.array(part.read_value())
            for variable in held
            for part in getattr(getattr(variable, "_value", variable), "values", None)
            or [getattr(variable, "_value", variable)]
        ]
        assert len(parts) >= 4
        return hashlib.sha256(b"".join(p.tobytes() for p in parts)).hexdigest()


def _list_slots(optimizer):
    found = optimizer.variables
    return list(found() if callable(found) else found)


def train(strategy, name: str, folder: Path | None) -> str:
    """Run a job, recorded if there is a folder; returns what it came to.

    What follows a `+` in its name is an option of the recorder.
    """
    import distbench

    kind, _, option = name.partition("+")
    options = {option: True} if option else {}
    family, _, fault = kind.partition("-")
    job = Job(strategy, family, fault)
    if folder is None:
        job.loop()
    else:
        before = _describe(job.optimizer)
        with distbench.record(
            strategy, job.optimizer, folder=folder, **options
        ) as recorder:
            job.loop(recorder)
        assert _describe(job.optimizer) == before
    # What was traced inside goes on, with nobody reading.
    job.loop(steps=1)
    return job.digest()


def _describe(optimizer) -> list[object]:
    """What an observer would have changed: methods of the instance, and of classes."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    methods = {
        name: value
        for one in (optimizer, inner)
        for name, value in vars(one).items()
        if (callable(value) and "apply" in name) or "update_step" in name
    }
    kinds = [type(tf.function(lambda: 0)), *type(inner).__mro__]
    called = [vars(kind).get("__call__") for kind in kinds]
    applied = [vars(kind).get("apply_gradients") for kind in kinds]
    return [methods, called, applied, tf.GradientTape.gradient]


def list_refusals(folder: Path) -> dict[str, str]:
    """What a job is told that cannot be recorded."""
    import distbench

    said = {}

    @contextlib.contextmanager
    def refused(name: str):
        try:
            yield
        except (ValueError, RuntimeError) as error:
            said[name] = f"{type(error).__name__}: {error}"

    strategy = make_strategy(2)
    for family in ("legacy", "v1"):
        job = Job(strategy, family)
        job.loop(steps=1)
        with (
            refused(f"traced-{family}"),
            distbench.record(strategy, job.optimizer, folder=folder / family),
        ):
            job.loop()

    job = Job(strategy)

    @tf.function
    def train_twice(batch):
        for _ in tf.range(2):
            job.step_all(batch)

    with (
        refused("loop"),
        distbench.record(strategy, job.optimizer, folder=folder / "loop"),
    ):
        train_twice(job.shard(read_batch(0)))
    job = Job(make_strategy(1))
    compiled = tf.function(job.step_all, jit_compile=True)
    with refused("jit"), distbench.record(None, job.optimizer, folder=folder / "jit"):
        compiled(job.shard(read_batch(0)))
    with refused("nothing"), distbench.record(None, job.optimizer, folder=folder / "n"):
        pass
    with refused("folder"):
        for _ in range(2):
            job = Job(strategy)
            with distbench.record(strategy, job.optimizer, folder=folder / "twice"):
                job.loop(steps=1)
    job = Job(strategy)
    with (
        refused("loss"),
        distbench.record(strategy, job.optimizer, folder=folder / "loss") as recorder,
    ):
        job.loop(steps=1)
        recorder.loss({"loss": 1.0})
    with refused("optimizer"):
        distbench.record(strategy, "adam")
    with refused("strategy"):
        distbench.record("mirrored", job.optimizer)
    with refused("copies"):
        distbench.record(None, job.optimizer)
    job = Job(strategy)  # whose optimizer has no state yet
    with refused("later"), distbench.record(None, job.optimizer, folder=folder / "l"):
        job.loop(steps=1)
    return said


def lose_the_disk(folder: Path) -> dict[str, object]:
    """What becomes of a job whose trace can no longer be written, and of the trace."""
    import distbench

    strategy = make_strategy(2)
    alone = Job(strategy)
    alone.loop(steps=1)
    alone.loop(steps=1)
    job = Job(strategy)
    with (
        warnings.catch_warnings(record=True) as warned,
        distbench.record(strategy, job.optimizer, folder=folder) as recorder,
    ):
        warnings.simplefilter("always", RuntimeWarning)
        job.loop(recorder, steps=1)
        shutil.rmtree(folder)
        job.loop(recorder, steps=1)
    return {
        "said": [str(one.message) for one in warned if one.category is RuntimeWarning],
        "recorded": recorder.recorded,
        "ended": [alone.digest(), job.digest()],
    }


def record_oddly(folder: Path) -> None:
    """Loops that are written in other ways than the usual one."""
    import distbench

    one = tf.distribute.get_strategy()
    job = Job(one)
    with distbench.record(one, job.optimizer, folder=folder / "eager"):
        for step in range(STEPS):
            job.step(job.shard(read_batch(step)))

    # A tf.function within the step computes the gradient; other calls are no steps.
    job = Job(one)
    variables = job.model.trainable_variables

    @tf.function
    def differentiate(inputs, targets):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((job.model(inputs) - targets) ** 2) / EXAMPLES
        return tape.gradient(loss, variables)

    @tf.function
    def apply(inputs, targets):
        gradients = differentiate(inputs, targets)
        job.optimizer.apply_gradients(zip(gradients, variables, strict=True))

    @tf.function
    def evaluate(inputs):
        return tf.reduce_sum(job.model(inputs))

    with distbench.record(one, job.optimizer, folder=folder / "nested"):
        for step in range(STEPS):
            batch = job.shard(read_batch(step))
            evaluate(batch[0])
            apply(*batch)
            evaluate(batch[0])

    # Two optimizers, each with a function of its own, are one step if so said.
    jobs = [Job(one), Job(one, "keras2")]
    optimizers = [job.optimizer for job in jobs]
    with distbench.record(one, optimizers, folder=folder / "two", every=2) as recorder:
        for step in range(2 * STEPS):
            with recorder.step():
                for job in jobs:
                    job.train(job.shard(read_batch(step)))
                recorder.loss(float(step), "number")

    # What goes wrong in between takes nothing with it.
    job = Job(one)
    with (
        contextlib.suppress(KeyError),
        distbench.record(one, job.optimizer, folder=folder / "died", steps=2),
    ):
        job.loop(steps=1)
        raise KeyError

    for package, name in ((keras, "fit-keras3"), (tf_keras, "fit-keras2")):
        job = Job(make_strategy(2), "keras3" if package is keras else "keras2")
        with job.strategy.scope():
            job.model.compile(job.optimizer, "mse", jit_compile=False)
        with distbench.record(job.strategy, job.model.optimizer, folder=folder / name):
            inputs, targets = read_batch(0)
            job.model.fit(inputs, targets, batch_size=4, epochs=1, verbose=0)


def main(devices: int, folder: Path, *names: str) -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    logical = [tf.config.LogicalDeviceConfiguration()] * devices
    tf.config.set_logical_device_configuration(cpu, logical)
    if names == ("refusals",):
        print(json.dumps(list_refusals(folder)))
        return
    if names == ("lost",):
        print(json.dumps(lose_the_disk(folder / "lost")))
        return
    if names == ("odd",):
        record_oddly(folder)
        return
    strategy = make_strategy(devices)
    digests = {
        name: [train(strategy, name, place) for place in (None, folder / name)]
        for name in names
    }
    print(json.dumps(digests))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
