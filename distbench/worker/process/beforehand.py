"""Asks once, before any task is forked, what each of them would ask for the first time.

Python and TensorFlow keep such answers, and a fork has what was kept. Importing this
module asks. It runs no op and starts no thread, and what is missing in a list is asked
later: by each task.
"""

from __future__ import annotations

import inspect
import itertools
import types
from collections.abc import Mapping, MappingView, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute import values
from tensorflow.python.eager.polymorphic_function.polymorphic_function import (
    UnliftedInitializerVariable,
)
from tensorflow.python.framework import kernels, op_def_registry, ops
from tensorflow.python.ops import resource_variable_ops

_ABSTRACT = (
    Mapping, MappingView, Sequence, tf.DType, tf.TensorShape, tf.TypeSpec, tf.Variable,
    tf.__internal__.CompositeTensor, tf.__internal__.distribute.ShardedVariable,
    values.DistributedVariable, tf.types.experimental.TraceType,
)  # fmt: skip
"""Classes that are asked what belongs to them: they ask those derived from them."""
_CONCRETE = (
    bool, int, float, str, tuple, list, dict, set, type, type(None),
    types.FunctionType, types.MethodType, types.MappingProxyType,
    inspect.Parameter, inspect.Signature, np.ndarray, np.float32, np.int32,
    tf.DType, tf.TensorShape, tf.TensorSpec, tf.IndexedSlices, tf.Operation,
    ops.EagerTensor, ops.SymbolicTensor, values.MirroredVariable, values.PerReplica,
    resource_variable_ops.ResourceVariable, resource_variable_ops._UnreadVariable,
    UnliftedInitializerVariable,
)  # fmt: skip
"""Classes of what comes by while a step is traced."""

for _pair in itertools.product(_CONCRETE, _ABSTRACT):
    issubclass(*_pair)
# The first time that a name is not found, as none of a function is, TensorFlow makes a
# list of all ops.
op_def_registry.get("an op that nobody has registered")
# The first time that a kernel is looked for, those that would be compiled are left out.
kernels.get_registered_kernels_for_op("an op that nobody has registered")
