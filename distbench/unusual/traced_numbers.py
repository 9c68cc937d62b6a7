"""Correct programs with numbers of Python's that move as an update is traced."""

from __future__ import annotations

from distbench.samples.optimizers import OwnRule, optimizer
from distbench.unusual.program import unusual


@unusual(workload="embedding")
@optimizer("Optimizer", "OwnRule")
class CountsWhatIsTraced(OwnRule):
    """It counts how often an update is traced, and its rate goes by the variable."""

    traced = 0

    def update_variable(self, var, slot, grad):
        self.traced += 1
        rate = self.rate * 0.5 ** len(var.shape)
        return var.assign_sub(rate * slot)
