"""tf_keras' new Nadam counts its steps while it is traced: graphs differ from eager.

Where: `Nadam.update_step` in tf_keras/src/optimizers/nadam.py. The product of the
momenta is to be made once a step, for which `_u_product_counter` says whether another
variable has made it. The counter is a number of Python: a traced step keeps the values
of its trace. So every variable multiplies again, in all steps but one, and what comes
out depends on how many variables there are and on how often was traced before; traced
once more, as for a batch of another shape, a first step divides by 0.

distbench: passes, with nothing to say: a cluster and one device trace a step equally
often, and agree. No thread of its own was found; the authors of Keras 3 compared with
it run eagerly "due to a bug" (https://github.com/keras-team/keras-core/pull/551).
"""

import tensorflow as tf
import tf_keras

STEPS = 4


def train(variables, *, wrap, traces=1):
    """The product of the momenta after some steps with gradients of 1."""
    trained = [tf.Variable(1.0) for _ in range(variables)]
    optimizer = tf_keras.optimizers.Nadam(0.1, jit_compile=False)
    optimizer.build(trained)

    def step():
        optimizer.apply_gradients([(tf.constant(1.0), v) for v in trained])

    if wrap:
        for _ in range(traces - 1):
            tf.function(step).get_concrete_function()
        step = tf.function(step)
    for _ in range(STEPS):
        step()
    product = float(optimizer._u_product.numpy())
    return round(product, 4), round(float(trained[-1].numpy()), 4)


print(f"after {STEPS} steps: product of the momenta, last variable; due is eager's")
for variables in (1, 3):
    print(f"  {variables} variables, eager:          ", *train(variables, wrap=False))
    print(f"  {variables} variables, tf.function:    ", *train(variables, wrap=True))
    retraced = train(variables, wrap=True, traces=2)
    print(f"  {variables} variables, traced once more:", *retraced)
