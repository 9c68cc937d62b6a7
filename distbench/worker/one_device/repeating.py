"""A batch with each of its examples several times."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[Any]
"""One row for each example."""


def repeat_rows(rows: Rows, times: int) -> Rows:
    """All rows so many times, there and back again.

    What holds each example against its neighbour has nothing new to add where the batch
    turns. If it came after itself, the last example would meet the first one, and what
    that makes up would look as if no repetition changed it.

    Args:
        rows: One for each example: [n, ...].
        times: How often.

    Returns:
        [times * n, ...].
    """
    return np.concatenate([rows[::-1] if turn % 2 else rows for turn in range(times)])
