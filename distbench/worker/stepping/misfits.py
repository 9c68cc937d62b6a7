"""What keeps a batch from being a nest of arrays that are shared out by their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.util import nest

_FEWEST = 4
"""Fewer rows are hardly a batch."""
_SHAPES_SHOWN = 6
"""A nest of lists has a shape for every number in it."""


def describe_misfit(batch: Any, arrays: Sequence[Any]) -> str:
    """What was received in the place of a batch, and what to do about it.

    Args:
        batch: The nest, of whose arrays the first axes are not of one length.
        arrays: Its leaves as arrays.
    """
    if not arrays:
        return "Received: no array. Return the batch."
    named = nest.flatten_with_joined_string_paths(batch)
    for (name, leaf), array in zip(named, arrays, strict=True):
        if array.ndim == 0 and (array.dtype.hasobject or isinstance(leaf, str | bytes)):
            place = f" at '{name}'" if name else ""
            return (
                f"Received: an object of type '{type(leaf).__name__}'{place}. "
                f"{_advise_instead(leaf, is_part=bool(name))}"
            )
    shapes = [
        f"'{name}': {array.shape}" if name else str(array.shape)
        for (name, _), array in zip(named, arrays, strict=True)
    ]
    if len(shapes) > _SHAPES_SHOWN:
        shapes[_SHAPES_SHOWN:] = ["..."]
    if sum(isinstance(x, bool | int | float) for _, x in named) > 1:
        advice = "Lists are taken as a structure: use np.array."
    else:
        advice = (
            "Give each part a first axis, with as many examples as the others have."
            f"{_advise_several(named, arrays)}"
        )
    return f"Received, as arrays, the shapes [{', '.join(shapes)}]. {advice}"


def _advise_several(named: Sequence[tuple[str, Any]], arrays: Sequence[Any]) -> str:
    """What to do with a part that has several rows for each example of another one."""
    lengths = [array.shape[0] if array.ndim else 0 for array in arrays]
    fewest = min(lengths)
    if fewest < _FEWEST or any(length % fewest for length in lengths):
        return ""
    place = next(n for n, length in enumerate(lengths) if length != fewest)
    name, (rows, *shape) = named[place][0], arrays[place].shape
    split = (fewest, rows // fewest, *shape)
    return (
        f" If {rows // fewest} rows of '{name}' belong to an example, reshape it to "
        f"{split} here, and back in the step."
    )


def _advise_instead(leaf: Any, *, is_part: bool) -> str:
    if callable(getattr(leaf, "as_numpy_iterator", None)):
        return (
            "Return one batch of it, next(dataset.skip(step).as_numpy_iterator()), or "
            "bring that of a train program in dataset() or dataset_fn(input_context)."
        )
    if isinstance(leaf, Iterator):
        return "Return one batch, that of the step, in place of what yields batches."
    if leaf is None:
        return "Leave that part out." if is_part else "Return the batch."
    return "Return an array, or a tuple, list or dictionary of arrays."


def describe_odd_array(batch: Any) -> str:
    """The first array of a nest that TensorFlow makes no tensor of; `""` without one.

    Args:
        batch: A nest of NumPy arrays.
    """
    for name, array in nest.flatten_with_joined_string_paths(batch):
        if not _is_convertible(array):
            kinds = sorted({type(one).__name__ for one in array.ravel().tolist()})
            held = f", with objects of type {', '.join(kinds)}"
            return (
                f"an array of dtype {array.dtype}{f' at {name!r}' if name else ''}"
                f"{held if array.dtype.hasobject else ''}"
            )
    return ""


def _is_convertible(array: Any) -> bool:
    try:
        if array.dtype.hasobject:
            tf.convert_to_tensor(np.ravel(array))  # text is of that dtype as well
        else:
            tf.as_dtype(array.dtype)
    except (TypeError, ValueError):
        return False
    return True
