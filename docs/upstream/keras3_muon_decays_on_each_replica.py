"""Keras 3's Muon decays weights on each replica by itself.

Where: `Muon._apply_weight_decay` in keras/src/optimizers/muon.py assigns the variables
in replica context. The other optimizers' decay (`TFOptimizer._apply_weight_decay` in
keras/src/backend/tensorflow/optimizer.py) goes through `merge_call` and updates each
copy once. So Muon raises where replicas share their variables, and a variable that sums
what replicas assign becomes N times itself.

distbench: `refused` under `central`, where Muon itself is the control. No thread was
found.
"""

import keras
import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 2,
)
DEVICES = ["cpu:0", "cpu:1"]
SUM = tf.VariableAggregation.SUM
STRATEGIES = (
    ("central storage", tf.distribute.experimental.CentralStorageStrategy, None),
    ("mirrored", tf.distribute.MirroredStrategy, None),
    ("mirrored, a variable that sums", tf.distribute.MirroredStrategy, SUM),
)


def decay(strategy, aggregation, make):
    """1 after one step with a decay of a half and no gradient."""
    with strategy.scope():
        variable = tf.Variable([[1.0]], aggregation=aggregation)
        optimizer = make(1.0, weight_decay=0.5)
        optimizer.build([variable])

    @tf.function
    def run():
        strategy.run(lambda: optimizer.apply_gradients([(tf.zeros([1, 1]), variable)]))

    try:
        run()
    except ValueError as error:
        return str(error).strip().splitlines()[-1].strip()[:66]
    return round(float(variable.numpy()[0, 0]), 4)


def make_muon(rate, **options):
    """Muon, which then asks for no path of a variable."""
    return keras.optimizers.Muon(rate, exclude_embeddings=False, **options)


for words, make_strategy, aggregation in STRATEGIES:
    aggregation = aggregation or tf.VariableAggregation.NONE
    print(f"{words}, due 0.5")
    for name, make in (("SGD: ", keras.optimizers.SGD), ("Muon:", make_muon)):
        print(f"  {name}", decay(make_strategy(DEVICES), aggregation, make))
