"""What factories, and the methods of a train program, are called with."""

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
        signature = _find_misfit(getattr(subject, method, None), *given)
        if signature is not None:
            batch = " Take a batch of several parts apart in it: x, y = batch."
            raise BadInputError(
                f"Train program '{name}': {method} is called as "
                f"{method}({', '.join(given)}). Received: a method that is "
                f"{method}{signature}.{batch if method == 'replica_step' else ''}"
            )


def check_data(data: Any, name: str) -> None:
    """See that a Keras model's `data` takes the number of a step.

    Raises:
        BadInputError: It takes fewer or more arguments.
    """
    signature = _find_misfit(data, *_CALLED_WITH["data"])
    if signature is not None:
        raise BadInputError(
            f"Keras model '{name}': data is called as data(step). Received: a function "
            f"that is data{signature}."
        )


def check_factory(factory: Any, name: str) -> None:
    """See that a callable can be called without arguments.

    Raises:
        BadInputError: It needs some.
    """
    signature = _find_misfit(factory)
    if signature is not None:
        raise BadInputError(
            f"Factory '{name}' is called without arguments. Received: one that takes "
            f"{signature}. {_advise_wrapper(factory)}"
        )


def check_class(subject: type, name: str) -> None:
    """See that a train program's class can be called without arguments.

    Raises:
        BadInputError: It needs some.
    """
    signature = _find_misfit(subject)
    if signature is not None:
        raise BadInputError(
            f"Train program '{name}' is a class, which is called without arguments. "
            f"Received: one that takes {signature}. Make an instance beside it and "
            f"name that: program = {name}(...)."
        )


def _advise_wrapper(factory: Any) -> str:
    """How a callable that needs arguments, or an instance, may be checked."""
    called = getattr(factory, "__qualname__", "")
    owner, _, method = called.rpartition(".")
    # What a function made, or a lambda, has a name that nobody can write.
    if not all(part.isidentifier() for part in called.split(".")):
        return "Check a function that gives them."
    if owner and next(iter(inspect.signature(factory).parameters), "") == "self":
        called = f"{owner}().{method}"
    return f"Check a function that gives them: def make_it(): return {called}(...)."


def _find_misfit(function: Any, *given: str) -> inspect.Signature | None:
    """What a callable takes, where that is not what it is called with."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # none, or not written in Python
        return None
    try:
        signature.bind(*given)
    except TypeError:
        return signature
    return None
