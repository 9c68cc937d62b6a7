import tensorflow as tf
import tf_keras


class ClippedSGD(tf_keras.optimizers.legacy.SGD):
    def apply_gradients(self, grads_and_vars, name=None, **kwargs):
        gradients, variables = zip(*grads_and_vars)
        gradients, _ = tf.clip_by_global_norm(gradients, 1.0)
        return super().apply_gradients(zip(gradients, variables), name, **kwargs)


def make_clipped_sgd():
    return ClippedSGD(0.01)
