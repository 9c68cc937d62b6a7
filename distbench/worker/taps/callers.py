"""Which line of a program an op comes from."""

from __future__ import annotations

import re
from typing import Any

from tensorflow.python.util.tf_stack import extract_stack

from distbench.worker.process.sources import is_of, is_of_caller, is_of_ops

_INSTALLED = re.compile(r"^.*[/\\](site|dist)-packages[/\\]")


def find_caller(op: Any) -> Any:
    """The last frame outside of what makes ops; None where there is none."""
    callers = [f for f in op.traceback if not is_of_ops(f.filename)]
    return callers[-1] if callers else None


def name_op(op: Any) -> str:
    """The line that an op comes from and its type, as in a message."""
    caller = find_caller(op)
    return f"{name_line(caller)} ({op.type})" if caller else f"an op {op.type}"


def name_own_line() -> str:
    """The subject's line that runs now; empty where Keras or the bench is nearer."""
    found = [
        frame
        for frame in extract_stack()
        if not is_of_ops(frame.filename) and not is_of_caller(frame.filename)
    ]
    if not found or is_of(found[-1].filename, "keras", "tf_keras"):
        return ""
    return name_line(found[-1])


def name_line(frame: Any) -> str:
    """File and number of a frame's line, as in a message."""
    # Where a package is installed tells nobody anything, and fills a line.
    return f"{_INSTALLED.sub('', frame.filename)}:{frame.lineno}"
