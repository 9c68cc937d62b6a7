"""An optimizer whose aggregator forgets to aggregate."""

import tf_keras


def make_unsummed():
    return tf_keras.optimizers.legacy.SGD(0.1, gradient_aggregator=lambda pairs: pairs)
