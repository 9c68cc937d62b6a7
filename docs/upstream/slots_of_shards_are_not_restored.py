"""Slots of shards that a checkpoint is to restore when they come into being stay 0.

Where: `tf.train.Checkpoint.restore` before the first step, as most programs have it.
In tf_keras/src/optimizers/legacy/optimizer_v2.py `_create_or_restore_slot_variable` has
what a checkpoint holds wait for a slot of the whole `ShardedVariable`, and
`_restore_slot_variable` asks for what waits for a shard, which is nothing. The new
optimizers lose it as well. Nothing is said, and the number of shards need not have
changed. Slots that are there before come out right, whatever the number of shards.

distbench: `state-not-restored` at `slot`, with `restore_from` and `partitioner`.
https://github.com/keras-team/tf-keras/issues/838 (found open) is on such slots.
"""

import tempfile

import tensorflow as tf
import tf_keras


def cut(count):
    """A variable of six rows in some shards."""
    name = "rows/part_{}" if count > 1 else "rows"
    parts = tf.split(tf.ones(6), count)
    shards = [tf.Variable(p, name=name.format(i)) for i, p in enumerate(parts)]
    if count == 1:
        return shards[0], shards
    return tf.__internal__.distribute.ShardedVariable(shards), shards


def step(optimizer, shards, gradient):
    """One step with the same gradient everywhere."""
    optimizer.apply_gradients([(gradient * tf.ones_like(s), s) for s in shards])


def show(make, read, before, after, made_before):
    """The first slot after a restore and a step without a gradient; due is -0.5."""
    (whole, shards), optimizer = cut(before), make()
    step(optimizer, shards, 1.0)
    with tempfile.TemporaryDirectory() as folder:
        saved = tf.train.Checkpoint(rows=whole, optimizer=optimizer)
        path = saved.write(f"{folder}/saved")
        (whole, shards), optimizer = cut(after), make()
        if made_before:
            step(optimizer, shards, 0.0)
        tf.train.Checkpoint(rows=whole, optimizer=optimizer).restore(path)
        step(optimizer, shards, 0.0)
    return float(read(optimizer, shards[0])[0])


MAKERS = {
    "tf_keras legacy": (
        lambda: tf_keras.optimizers.legacy.SGD(1.0, momentum=0.5),
        lambda optimizer, shard: optimizer.get_slot(shard, "momentum"),
    ),
    "tf_keras": (
        lambda: tf_keras.optimizers.SGD(1.0, momentum=0.5, jit_compile=False),
        lambda optimizer, _: optimizer.momentums[0],
    ),
}
for name, (make, read) in MAKERS.items():
    for before, after in ((1, 1), (2, 1), (1, 2), (2, 2), (2, 3)):
        lazily, eagerly = (show(make, read, before, after, made) for made in (0, 1))
        print(f"{name}, {before} to {after} shards: {lazily}, made before {eagerly}")
