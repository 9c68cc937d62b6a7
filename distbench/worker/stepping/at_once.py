"""Traces a step once where only the framework's own code makes variables in it."""

from __future__ import annotations

import functools
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import tensorflow as tf

from distbench.worker.process.intercept import convert, hide_from_autograph
from distbench.worker.process.sources import is_of, is_of_caller

_FRAMEWORKS = ("tensorflow", "tf_keras", "keras")
"""Packages whose code does the same whether it is traced for the first time or not."""


def trace_at_once(function: Any) -> None:
    """Have the first trace of a `tf.function` be as good as a second one.

    `tf.function` traces a function again that made variables when it was traced: the
    first graph has their initialisation in it. What an optimizer makes in
    `tf.init_scope`, its slots above all, is not initialised by the graph at all, so
    such variables are told not to be lifted out of it, and the second trace is left
    out.

    The user's code may do another thing when it makes variables than when it has them,
    and only the second trace is ever run. So wherever code of theirs is being called
    while a variable is made, all is left as it is.

    Args:
        function: It stands around all that the user wrote, and has not been traced yet.
    """

    def enter(body: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(body)
        def step(*args: Any, **kwargs: Any) -> Any:
            with tf.variable_creator_scope(create):
                return convert(body, asked=True)(*args, **kwargs)

        def create(make: Callable[..., Any], **options: Any) -> Any:
            frames = _list_frames(getattr(step, "__code__", None))
            if tf.executing_eagerly() and not any(map(_is_users, frames)):
                options["experimental_enable_variable_lifting"] = False
            return make(**options)

        hide_from_autograph(step)
        return step

    function._decorate(enter)


def _list_frames(outermost: object) -> Iterator[FrameType]:
    """What is being called where a variable is made.

    Replicas trace in threads of their own, one at a time. Where they meet, one thread
    goes on for all of them; elsewhere the others wait, and take no part in it: one may
    still be in code that the maker has left, as one device has by then.

    Args:
        outermost: The code around which nothing matters.
    """
    for_all = tf.distribute.in_cross_replica_context()
    for thread, innermost in _read_threads().items():
        frames = list(_walk_frames(innermost, outermost))
        is_root = frames[-1].f_code is outermost
        if for_all or is_root or thread == threading.get_ident():
            yield from frames


def _read_threads() -> dict[int, FrameType]:
    """What each thread of this process is in, by its identity.

    Up to Python 3.11 the collector may start while the interpreter has its list of
    threads locked to read it, and then waits for ever for that lock, to end what is
    local to a thread (python/cpython#106883). So it rests meanwhile.
    """
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        if is_collecting:
            gc.enable()


def _walk_frames(innermost: FrameType, outermost: object) -> Iterator[FrameType]:
    frame: FrameType | None = innermost
    while frame is not None:
        yield frame
        frame = None if frame.f_code is outermost else frame.f_back


def _is_users(frame: FrameType) -> bool:
    # What AutoGraph made of a function has the names of the function's own module.
    file = str(frame.f_globals.get("__file__", frame.f_code.co_filename))
    return not (is_of(file, *_FRAMEWORKS) or is_of_caller(file))
