"""Keras 3 and tf_keras' new optimizers read, then assign: asynchronous steps race.

Where: `Variable.assign_add` in keras/src/backend/common/variables.py assigns what it
has read plus the value; `BaseOptimizer.apply` in keras/src/optimizers/base_optimizer.py
counts its steps with it. The rules with slots of both, such as `SGD.update_step` in
tf_keras/src/optimizers/sgd.py, assign a slot what they read of it and then read it
again. Between these ops steps of other workers of `ParameterServerStrategy` write.
The legacy optimizers of tf_keras do each of it in one op.

distbench: `--in-flight 8` on ps:2+1 gives `iterations-wrong` with Keras 3, and
`lost-update` with tf_keras' plain SGD, which has the slot as well. With a momentum both
give `lost-update`, `extra-update` or `unexplained`.
https://github.com/keras-team/keras/issues/18668
"""

import keras
import tensorflow as tf
import tf_keras

WRITES = "Assign", "ResourceApply"


def list_writes(optimizer, variable, changed):
    """The ops that write what the step changes, after the variables are there."""

    @tf.function
    def step():
        optimizer.apply_gradients([(tf.ones(2), variable)])

    step()
    operations = step.get_concrete_function().graph.get_operations()
    found = [op.type for op in operations if op.type.startswith(WRITES)]
    return f"{len(changed)} numbers or arrays change, by {', '.join(found)}"


MAKERS = {
    "tf_keras legacy": (tf_keras.optimizers.legacy.SGD, tf.Variable),
    "tf_keras": (tf_keras.optimizers.SGD, tf.Variable),
    "Keras 3": (keras.optimizers.SGD, keras.Variable),
}
for momentum in (0.0, 0.5):
    changed = ["variable", "iterations", *(["momentum"] if momentum else [])]
    print(f"SGD, momentum {momentum}")
    for name, (make, make_variable) in MAKERS.items():
        options = {"jit_compile": False} if name == "tf_keras" else {}
        optimizer = make(0.1, momentum=momentum, **options)
        variable = make_variable(tf.zeros(2))
        print(f"  {name}: {list_writes(optimizer, variable, changed)}")
