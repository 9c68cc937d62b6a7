"""Where the data of a Keras model is: on the callable that returns it, or beside it."""

from __future__ import annotations

import sys
from typing import Any

from distbench.worker.stepping.program import METHODS


def look_up_data(subject: Any) -> Any:
    """`data` of a callable, or of the module that it comes from; None without."""
    if all(callable(getattr(subject, name, None)) for name in METHODS):
        return None
    found = getattr(subject, "data", None)
    if found is None:
        module = sys.modules.get(getattr(subject, "__module__", None) or "")
        found = getattr(module, "data", None)
    return found


def find_data(subject: Any) -> Any:
    """`data(step)` of such a callable, if it can be called; None otherwise."""
    found = look_up_data(subject)
    return found if callable(found) else None


def describe_lack(subject: Any) -> str:
    """What a callable that returns a model lacks: data, or a function that gives it."""
    found = look_up_data(subject)
    if found is None:
        return (
            "a Keras model, which needs data(step), on the callable or in its module, "
            "to train on"
        )
    hint = (
        ": write 'def data(step): return next(batches.skip(step).as_numpy_iterator())' "
        "beside batches, the tf.data.Dataset, whose batches are the global ones"
        if callable(getattr(found, "as_numpy_iterator", None))
        else ""
    )
    return (
        f"a Keras model, whose 'data' is an object of type '{type(found).__name__}' in "
        "place of a function data(step) that returns the global batch of a step"
        f"{hint}"
    )
