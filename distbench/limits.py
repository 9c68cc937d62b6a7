"""What no run can do without or have more of: its seed, deadline and memory."""

from __future__ import annotations

import threading

from distbench.errors import BadInputError
from distbench.spelling import spell

UNASKED_S = 120.0
"""The deadline of a cluster where nobody sets one."""
PATIENCE = 5.0
"""As many times as long it is then at most where tasks compute: a large model on a busy
machine is traced for minutes."""
_LONGEST_S = threading.TIMEOUT_MAX
"""What the system can wait for: some centuries."""


def check_seed(seed: int) -> None:
    """Raise BadInputError for a seed that TensorFlow or NumPy refuses."""
    if not 0 <= seed < 1 << 31:
        raise BadInputError(
            f"{spell('seed')} must be from 0 to 2**31 - 1. Received: {seed}."
        )


def check_timeout(timeout_s: float) -> None:
    """Raise BadInputError for a deadline that has passed already or never comes."""
    if not 0 < timeout_s < _LONGEST_S:
        raise BadInputError(
            f"{spell('timeout_s')} must be a positive number of seconds, and less than "
            f"{_LONGEST_S:.0e}. Received: {timeout_s}."
        )


def find_longest(timeout_s: float) -> float:
    """How many seconds a cluster may take at most where its tasks compute.

    Args:
        timeout_s: Its deadline, asked for or not.
    """
    return timeout_s * (PATIENCE if timeout_s == UNASKED_S else 1.0)


def check_memory(memory_gib: float | None) -> None:
    """Raise BadInputError for a limit that is none."""
    if memory_gib is not None and not 0 < memory_gib < float("inf"):
        raise BadInputError(
            "The memory limit must be a positive number of GiB. "
            f"Received: {memory_gib}."
        )
