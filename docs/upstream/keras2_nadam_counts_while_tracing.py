"""tf_keras' new Nadam counts its steps while it is traced: graphs differ from eager.

Where: `Nadam.update_step` in tf_keras/src/optimizers/nadam.py. The product of the
momenta is to be made once a step, for which `_u_product_counter` says whether another
variable has made it. The counter is a number of Python: a traced step keeps the values
of its trace. So every variable multiplies again, in all steps but one, and what comes
out depends on how many variables there are and on how often was traced before; traced
once more, as for a batch of another shape, a first step divides by 0. Where a process
traces for several replicas, as under `MirroredStrategy`, the counter moves once for
each of them: the one step without a product is another one for each replica, and their
copies part.

distbench: `hyperparameter-differs` at `slot`, origin `framework`, under `mirrored`. It
traces a step of `fit` once, and finds it in the first one; a step that is traced twice,
as where the first trace makes slots, is counted past the first steps, and few may pass.
Where each process traces for one replica, under `mwms`, both trace equally often, and
agree. No thread of its own was
found; the authors of Keras 3 compared with it run eagerly "due to a bug"
(https://github.com/keras-team/keras-core/pull/551).
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


def train_mirrored():
    """The product on each of two replicas after each step, of one variable."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    halves = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, halves)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        variable = tf.Variable(1.0)
        optimizer = tf_keras.optimizers.Nadam(0.1, jit_compile=False)
        optimizer.build([variable])

    def update():
        optimizer.apply_gradients([(tf.constant(0.5), variable)])

    step = tf.function(lambda: strategy.run(update))
    for _ in range(STEPS):
        step()
        yield [round(float(copy), 4) for copy in optimizer._u_product.values]


mirrored = list(train_mirrored())
print(f"after {STEPS} steps: product of the momenta, last variable; due is eager's")
for variables in (1, 3):
    print(f"  {variables} variables, eager:          ", *train(variables, wrap=False))
    print(f"  {variables} variables, tf.function:    ", *train(variables, wrap=True))
    retraced = train(variables, wrap=True, traces=2)
    print(f"  {variables} variables, traced once more:", *retraced)
print("product on two mirrored replicas after each step, of 1 variable")
for number, copies in enumerate(mirrored):
    print(f"  step {number}:", *copies)
