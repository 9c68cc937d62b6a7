"""Where a step draws random numbers: in the user's own code, or in a layer of Keras."""

from __future__ import annotations

import re
from typing import Any

from distbench.worker.state.graphs import list_ops

_DRAWS = re.compile(
    r"Random(?!.*(Get|Seed|Dataset|Queue))|Multinomial|TruncatedNormal"
    r"|^Stateful(StandardNormal|Uniform)|^StatelessShuffle$"
)
"""Types of the ops that draw; not of those that make a key or move a generator on."""
_TENSORFLOW = re.compile(r"[/\\]tensorflow[/\\]python[/\\]")
_INSTALLED = re.compile(r"^.*[/\\](site|dist)-packages[/\\]")
_KERAS = re.compile(r"[/\\](tf_)?keras[/\\]src[/\\]")


def find_draws(graph: Any) -> dict[str, str]:
    """Who draws: the place in the code, and `subject` or `framework`."""
    found: dict[str, str] = {}
    for op in list_ops(graph):
        if not _DRAWS.search(op.type):
            continue
        callers = [f for f in op.traceback if not _TENSORFLOW.search(f.filename)]
        if callers:
            file = callers[-1].filename
            # Where a package is installed tells nobody anything, and fills a line.
            place = f"{_INSTALLED.sub('', file)}:{callers[-1].lineno}"
            is_keras = _KERAS.search(file)
            found[place] = "framework" if is_keras else "subject"
    return found
