"""Scenarios that are run once more, in another way, where the first run leaves it open.

What a step does with XLA, without op determinism or with numbers that it draws may hide
what is wrong, or look wrong and not be. Each way is a file of its own that says when it
is taken and what it makes of the two runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from distbench.checking.plan import Planned
from distbench.diagnose.judgement import Judgement
from distbench.evidence import Evidence
from distbench.observe import Observation
from distbench.scenario import Scenario
from distbench.verdict import Run


class First(NamedTuple):
    """A scenario in one of its tiers, as it was run first, and what that came to."""

    item: Planned
    seen: Observation
    evidence: Evidence
    judgement: Judgement


class Judged(NamedTuple):
    """A run of a scenario in one of its tiers.

    Attributes:
        run: What came of it, or of the way in which it was run again.
        evidence: What that was judged by, if anything was compared.
        own: What the scenario itself showed, whatever it was judged by in the end.
    """

    run: Run
    evidence: Evidence | None = None
    own: Evidence | None = None


Told = Run | Judgement | None
"""What two runs come to: the second one, told so; what the first one comes to by the
second; or None where the first one stands."""


class Way(NamedTuple):
    """A way in which a scenario is run again.

    Attributes:
        words: What becomes of the scenario: "again " and these.
        change: The scenario to run, by the first one and its seconds.
        is_open: Whether it may show more than the first run of a tier did.
        tell: What both come to.
    """

    words: str
    change: Callable[[Scenario, float], Scenario]
    is_open: Callable[[First], bool]
    tell: Callable[[First, Judged], Told]

    def plan(self, item: Planned, seconds: float) -> Planned:
        """The scenario to run, where the first one took some seconds."""
        return replace(item, scenario=self.change(item.scenario, seconds))
