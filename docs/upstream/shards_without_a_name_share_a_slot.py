"""Shards without a name: tf_keras' optimizers raise where they make their slots.

Where: `ShardedVariable._unique_id` in
tensorflow/python/distribute/sharded_variable.py is that of the first shard, with
`part_0` replaced by `sharded`. A variable without a name has no `part_0` in it, so the
whole has the key of its first shard. `_create_slots_for_sharded_variables` in
tf_keras/src/optimizers/legacy/optimizer_v2.py then puts the whole where the slots of
that shard were, and `get_slot` asks itself for them.
`ParameterServerStrategyV2Extended._create_variable` gives shards no name where the
variable has none, so the first step of any such rule ends so. The new optimizers read
the number of a shard from its name, in `_ShardedVariableBuilder.add_shard` of
tf_keras/src/optimizers/optimizer.py. A name helps both.

distbench: `raises` in the first step with a `partitioner`, for a train program that
gives shards without a name to an optimizer with slots. No thread was found.
"""

import tensorflow as tf
import tf_keras

legacy = tf_keras.optimizers.legacy


def train(name, make):
    """One step on a variable of two shards."""
    shards = [
        tf.Variable(tf.ones(2), name=name and f"{name}/part_{number}")
        for number in range(2)
    ]
    whole = tf.__internal__.distribute.ShardedVariable(shards)
    same = whole._unique_id == shards[0]._unique_id
    try:
        make().apply_gradients([(tf.ones(2), shard) for shard in shards])
    except (RecursionError, ValueError) as error:
        return f"same key {same}, {type(error).__name__}"
    return f"same key {same}, {[float(shard[0]) for shard in shards]}"


RULES = {
    "legacy SGD": lambda: legacy.SGD(1.0),
    "legacy SGD, momentum": lambda: legacy.SGD(1.0, momentum=0.5),
    "SGD, momentum": lambda: tf_keras.optimizers.SGD(
        1.0, momentum=0.5, jit_compile=False
    ),
}
for rule, make in RULES.items():
    for name in ("rows", None):
        print(f"{rule}, name {name}: {train(name, make)}")
