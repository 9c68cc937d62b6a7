"""LARC (You et al., https://arxiv.org/abs/1708.03888) on top of SGD with momentum."""

import tensorflow as tf
import tf_keras


class LARC(tf_keras.optimizers.legacy.SGD):
    """No gradient moves a variable by more than a share of the variable's norm."""

    def __init__(self, learning_rate=0.5, momentum=0.9, trust=0.002, name="LARC"):
        super().__init__(learning_rate, momentum, name=name)
        self.share = trust / learning_rate

    def apply_gradients(self, grads_and_vars, name=None, **kwargs):
        limited = [(self.limit(grad, var), var) for grad, var in grads_and_vars]
        return super().apply_gradients(limited, name=name, **kwargs)

    def limit(self, grad, var):
        longest = self.share * tf.norm(var)
        factor = tf.minimum(1.0, longest / (tf.norm(grad) + 1e-9))
        return grad * tf.where(longest > 0, factor, 1.0)


def make_larc():
    return LARC()
