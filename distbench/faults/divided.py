"""Mistakes in sums of what is made small for the way."""

from __future__ import annotations

import numpy as np

from distbench.faults.fault import fault
from distbench.samples.program import TRAINED
from distbench.unusual.divided import DividedFirst


@fault("scale-error", "reduced_gradient", TRAINED, like="facebookresearch/fairseq#4220")
class DividedByNarrowFactor(DividedFirst):
    """What makes gradients small for the way is rounded, what makes them large not."""

    def find_share(self):
        return float(np.float16(super().find_share()))
