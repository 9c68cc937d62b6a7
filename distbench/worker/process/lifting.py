"""Where something was made that TensorFlow could not lift out of a function's graph.

It lifts the first values of variables, once the function is traced: the exception comes
from there, and the line that made the variable is in no traceback.
"""

from __future__ import annotations

import traceback

from tensorflow.python.ops.op_selector import UnliftableError

_LIFTED = "init_tensor"
"""What the function that raises has called it."""


def list_making_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames in which it was made; empty of any other exception."""
    if not isinstance(error, UnliftableError):
        return []
    for frame, _ in traceback.walk_tb(error.__traceback__):
        lifted = frame.f_locals.get(_LIFTED)
        op = getattr(lifted, "op", lifted)
        if op is not None:
            return [
                traceback.FrameSummary(
                    f.filename, f.lineno, f.name, line=f.line or None
                )
                for f in getattr(op, "traceback", ())
            ]
    return []
