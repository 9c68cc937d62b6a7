"""Under Keras 3 all replicas drop the same units.

Where: `SeedGenerator.next` in keras/src/random/seed_generator.py takes the seed of the
next draw from a variable that all replicas hold alike, and folds no number of the
replica into it. So N replicas average over one mask and not over N. The Dropout of
tf_keras draws from a `tf.random.Generator`, of which each replica has its own. No
thread on it was found.

distbench: `randomness-shared` at `loss`, origin `framework`, as a warning.
"""

import keras
import tensorflow as tf
import tf_keras

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 2,
)
STRATEGY = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])


def draw(module):
    """What each replica drops of sixteen units."""
    with STRATEGY.scope():
        layer = module.layers.Dropout(0.5, seed=5)

    @tf.function
    def run():
        return STRATEGY.run(lambda: layer(tf.ones([1, 16]), training=True))

    masks = STRATEGY.experimental_local_results(run())
    return ["".join("x."[int(x > 0)] for x in mask[0]) for mask in masks]


for module in (tf_keras, keras):
    first, second = draw(module)
    same = "the same" if first == second else "others"
    print(f"{module.__name__:8}  replica 0 {first}  replica 1 {second}  {same}")
