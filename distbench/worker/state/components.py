"""The plain variables behind those of strategies and of Keras; their values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from distbench.errors import BadInputError


def list_components(variable: Any) -> tuple[Any, ...]:
    """The plain variables behind one that a strategy, Keras or a cache wraps."""
    variable = unwrap_cast(variable)
    # A distributed variable that is asked for what it lacks reads its copies.
    if type(variable).__module__.startswith("keras.") and hasattr(variable, "_value"):
        return list_components(variable._value)
    if isinstance(variable, tf.distribute.DistributedValues) and hasattr(
        variable, "values"
    ):
        return tuple(unwrap_cast(part) for part in variable.values)
    inner = vars(variable).get("_v") if hasattr(variable, "__dict__") else None
    return list_components(inner) if hasattr(inner, "handle") else (variable,)


def unwrap_cast(variable: Any) -> Any:
    """The variable that tf_keras' AutoCastVariable of mixed precision stands for."""
    inner = getattr(variable, "__dict__", {}).get("_variable")
    is_cast = type(variable).__name__.startswith("AutoCast")
    return inner if is_cast and inner is not None else variable


def list_shards(variables: Iterable[Any]) -> Iterator[Any]:
    """The variables, those in shards taken apart."""
    for variable in variables:
        is_sharded = isinstance(variable, tf.__internal__.distribute.ShardedVariable)
        yield from variable.variables if is_sharded else [variable]


def is_variable(item: Any) -> bool:
    """Whether an object is a variable, of TensorFlow or of Keras."""
    if isinstance(item, (tf.Variable, tf.__internal__.distribute.ShardedVariable)):
        return True
    is_keras = type(item).__module__.startswith("keras.src.backend")
    return is_keras and hasattr(item, "_value") and hasattr(item, "assign")


def list_variables(given: Any, wanted: str) -> list[Any]:
    """The variables that a user lists.

    Args:
        given: What should list them.
        wanted: A sentence that says what has to be listed.

    Raises:
        BadInputError: It is no list, or lists something else.
    """
    # A variable of TensorFlow iterates over its rows, a mapping over its names.
    is_list = isinstance(given, Iterable) and not (
        isinstance(given, Mapping) or is_variable(given)
    )
    listed = list(given) if is_list else []
    others = [one for one in listed if not is_variable(one)]
    if is_list and not others:
        return listed
    wrong = others[0] if others else given
    raise BadInputError(
        f"{wanted} Received: an object of type '{type(wrong).__name__}'"
        f"{' in it' if others else ''}."
    )


def is_overwritten(variable: Any) -> bool:
    """Whether what a tape gives for a variable is its next value, and no gradient.

    Optimizers of Keras 3 assign that of such a variable, as of the scales of float8:
    they neither sum nor scale it.
    """
    # A variable of a strategy that is asked for what it lacks reads its copies.
    is_keras = hasattr(type(variable), "overwrite_with_gradient")
    return is_keras and bool(variable.overwrite_with_gradient)


def is_local(variable: Any) -> bool:
    """Whether every replica has a value of its own.

    What is trained and read as its first copy has one value, though each replica
    updates a copy itself, as in Sonnet: the others would train in vain.
    """
    is_one = getattr(variable, "trainable", False) and has_setting(
        variable, "aggregation", "ONLY_FIRST_REPLICA"
    )
    return not is_one and has_setting(variable, "synchronization", "ON_READ")


def has_setting(variable: Any, attribute: str, name: str) -> bool:
    """Whether a setting is this one: TensorFlow has enums, and Keras has strings."""
    value = getattr(variable, attribute, None)
    return str(getattr(value, "name", value)).upper() == name


def read_component(component: Any) -> npt.NDArray[np.generic]:
    """A plain variable's value, which stays as it is whatever becomes of the variable.

    On the host nothing is copied: a kernel that changes a variable in place copies what
    somebody else holds.
    """
    # What `read_value` adds to the op is for graphs, and costs as much again.
    dtype = component.dtype.base_dtype
    value = tf.raw_ops.ReadVariableOp(resource=component.handle, dtype=dtype)
    # `numpy()` copies, and NumPy itself cannot take a bfloat16 without dimensions.
    return np.asarray(value._numpy())


def write_component(component: Any, value: npt.NDArray[np.generic]) -> None:
    """Set a plain variable, outside of any replica."""
    # What `assign` adds to the op is for graphs, and costs twice as much again.
    given = tf.convert_to_tensor(value)
    if given.dtype != component.dtype.base_dtype:
        given = tf.cast(given, component.dtype.base_dtype)
    tf.raw_ops.AssignVariableOp(resource=component.handle, value=given)
