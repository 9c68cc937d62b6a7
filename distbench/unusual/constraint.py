"""Constraints on variables, applied by hand after the step."""

from __future__ import annotations

from distbench.samples.program import Constrained as _Constrained
from distbench.unusual.program import unusual


@unusual()
class KeptPositive(_Constrained):
    """Every copy of a variable is projected once the optimizer is done."""
