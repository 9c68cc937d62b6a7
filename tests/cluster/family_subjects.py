"""Stock optimizers of the newer families.

Loaded by the tasks from this file; nothing here knows of distbench.
"""

from __future__ import annotations

import tf_keras


def make_keras2_adam():
    return tf_keras.optimizers.Adam(0.1)


def make_keras2_sgd():
    return tf_keras.optimizers.SGD(0.125)
