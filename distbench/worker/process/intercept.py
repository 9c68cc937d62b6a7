"""Put a function in front of a method of one instance, without AutoGraph noticing."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

_MISSING = object()

Undo = Callable[[], None]
"""Puts back what was there before."""


@contextmanager
def replace_attribute(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Inside, an attribute of a module or a class is another one."""
    kept = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, kept)


def intercept(instance: Any, name: str, replacement: Callable[..., Any]) -> Undo:
    """Replace a method of one instance.

    Args:
        instance: The object whose method is replaced; its class is left alone.
        name: Name of the method.
        replacement: Called as `replacement(original, *args, **kwargs)`, with the
            arguments that it names in their places, however they were given.

    Returns:
        A function that puts the original back.
    """
    original = getattr(instance, name)
    before = vars(instance).get(name, _MISSING)
    signature = inspect.signature(original)
    place = _make_placer(signature, replacement)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return replacement(original, *place(args, kwargs), **kwargs)

    # Optimizers ask for the argument names of their methods (`_dense_apply_args`), and
    # `inspect.getfullargspec` does not look through `functools.wraps`.
    wrapper.__signature__ = signature  # type: ignore[attr-defined]
    hide_from_autograph(wrapper)
    # The optimizers' own __setattr__ tracks values or redirects hyperparameters.
    object.__setattr__(instance, name, wrapper)

    def restore() -> None:
        if before is _MISSING:
            object.__delattr__(instance, name)
        else:
            object.__setattr__(instance, name, before)

    return restore


def intercept_inherited(
    instance: Any, base: type, name: str, replacement: Callable[..., Any]
) -> Undo:
    """Replace a method of a base class for one instance.

    What a subclass calls through `super()` cannot be seen on the instance, so the class
    is changed.

    Args:
        instance: The only object for which anything changes.
        base: The class that defines the method.
        name: Name of the method.
        replacement: See `intercept`.

    Returns:
        A function that puts the original back.
    """
    original = base.__dict__[name]
    place = _make_placer(inspect.signature(original.__get__(instance)), replacement)

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        bound = original.__get__(self)
        if self is not instance:
            return bound(*args, **kwargs)
        return replacement(bound, *place(args, kwargs), **kwargs)

    hide_from_autograph(method)
    setattr(base, name, method)
    return lambda: setattr(base, name, original)


def _make_placer(
    signature: inspect.Signature, replacement: Callable[..., Any]
) -> Callable[[tuple[Any, ...], dict[str, Any]], tuple[Any, ...]]:
    """What moves arguments that are given by name into the places of a stand-in's own.

    Args:
        signature: Of the method; a subclass may call its arguments as it likes.
        replacement: Its stand-in, which takes the method first.
    """
    named = [
        parameter
        for parameter in inspect.signature(replacement).parameters.values()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    names = list(signature.parameters)[: len(named) - 1]

    def place(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        for name in names[len(args) :]:
            if name not in kwargs:
                break
            args = (*args, kwargs.pop(name))
        return args

    return place


def call_converted(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a user's function as the framework would: converted where it is on.

    A function called from Python code that AutoGraph skipped would lose its
    conversion (`if tensor:` then raises), so the status of the caller is passed on.
    Op by op there is nothing to convert, and a debugger shows the user's own lines.
    """
    return convert(function)(*args, **kwargs)


def convert(function: Callable[..., Any], *, asked: bool = False) -> Callable[..., Any]:
    """A function as the framework would call it; see `call_converted`.

    Args:
        function: The function.
        asked: Whether it is what a `tf.function` was made of, which is converted even
            if it is Keras' own.
    """
    if tf.executing_eagerly():
        return function
    autograph = tf.__internal__.autograph
    status = autograph.control_status_ctx()
    converted: Callable[..., Any] = autograph.tf_convert(
        function, status, user_requested=asked
    )
    return converted


def hide_from_autograph(function: Any) -> None:
    """Have AutoGraph call a function as it is, and go on below it."""
    # AutoGraph calls what bears this mark as it is and leaves its status unchanged
    # (tensorflow/python/autograph/impl/api.py, is_autograph_artifact);
    # `do_not_convert` would switch the conversion off for the user's code below.
    function.autograph_info__ = {}
