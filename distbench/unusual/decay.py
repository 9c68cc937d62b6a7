"""Weight decay done by hand, right."""

from __future__ import annotations

from distbench.samples.program import DecayedByHand as _DecayedByHand
from distbench.unusual.program import unusual


@unusual()
class ShrunkAfterTheStep(_DecayedByHand):
    """Every copy is shrunk once, after the optimizer's step."""
