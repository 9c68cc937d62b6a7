"""What the methods of a train program are called with."""

from __future__ import annotations

import inspect
from typing import Any

from distbench.errors import BadInputError

_CALLED_WITH = {
    "build": ("strategy",),
    "replica_step": ("batch",),
    "variables": (),
    "optimizer": (),
    "data": ("step",),
    "dataset_fn": ("input_context",),
    "dataset": (),
    "before_step": ("step",),
    "checkpoint": (),
}


def check_arguments(subject: Any, name: str) -> None:
    """See that a train program's methods take what they are called with.

    Found when a method is called, the error would tell of the call and not of the
    method.

    Args:
        subject: The train program.
        name: What it is called in an error.

    Raises:
        BadInputError: One takes fewer or more arguments.
    """
    for method, given in _CALLED_WITH.items():
        own = getattr(subject, method, None)
        try:
            signature = inspect.signature(own) if callable(own) else None
        except (TypeError, ValueError):  # not written in Python
            continue
        if signature is None:
            continue
        try:
            signature.bind(*given)
        except TypeError as error:
            batch = " Take a batch of several parts apart in it: x, y = batch."
            raise BadInputError(
                f"Train program '{name}': {method} is called as "
                f"{method}({', '.join(given)}). Received: a method that is "
                f"{method}{signature}.{batch if method == 'replica_step' else ''}"
            ) from error
