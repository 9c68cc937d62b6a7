"""All faults planted into simulated runs, in the causal order of their phases.

The unit tests run each for as few steps as it needs to show; the sweeps for longer, in
other sizes and with other numbers.
"""

from __future__ import annotations

import planted_before_sum
import planted_in_loss
import planted_in_rows
import planted_in_slots
import planted_in_sum
import planted_in_update

CASES = [
    *planted_in_loss.CASES,
    *planted_in_sum.CASES,
    *planted_before_sum.CASES,
    *planted_in_rows.CASES,
    *planted_in_slots.CASES,
    *planted_in_update.CASES,
]
ONE_OF_EACH = list({(c.code, c.phase): c for c in reversed(CASES)}.values())[::-1]
"""The first case of each code and phase; the sweeps run all."""
SETUPS = [dict(pairs) for pairs in dict.fromkeys(tuple(c.setup.items()) for c in CASES)]
"""What the faults are planted into, each once."""
