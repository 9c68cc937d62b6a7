"""How much a scenario may move before it is told."""

from __future__ import annotations

from dataclasses import dataclass

from distbench.errors import BadInputError
from distbench.spelling import spell, spell_given


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What counts as a drift, and as flaky.

    Attributes:
        window: Nights that are looked at, tonight's among them.
        least: Earlier runs without which nothing is said.
        error_ratio: Error / bound over the median of the window that is told.
        time_ratio: Seconds over the median of the window that are told.
        spread: How far beyond the window's own noise a drift lies, in standard
            deviations of its logarithms.
        confirm: Last runs that all have to be slow. One slow run says more of the
            machine than of the scenario.
        floor_s: Seconds that a time has to change by: less is the machine's.
        flaky: Shares of failed runs, from and to, at which a scenario is flaky.
    """

    window: int = 20
    least: int = 5
    error_ratio: float = 2.0
    time_ratio: float = 1.5
    spread: float = 3.0
    confirm: int = 2
    floor_s: float = 0.5
    flaky: tuple[float, float] = (0.05, 0.95)

    def __post_init__(self) -> None:
        for name in ("error_ratio", "time_ratio"):
            if not getattr(self, name) > 1.0:
                raise BadInputError(
                    f"{spell(name)} must be more than 1: it says how many times the "
                    f"median is too much. Received: {getattr(self, name)}."
                )
        for name, lowest in (
            ("least", 2),
            ("confirm", 1),
            ("spread", 0),
            ("floor_s", 0),
        ):
            if not getattr(self, name) >= lowest:
                raise BadInputError(
                    f"{spell(name)} must be {lowest} or more. "
                    f"Received: {getattr(self, name)}."
                )
        if self.window < self.least + self.confirm:
            raise BadInputError(
                f"The last {self.least + self.confirm} nights or more must be looked "
                f"at: {self.confirm} that may be slow ({spell('confirm')}), and "
                f"{self.least} before them ({spell('least')}). "
                f"Received: {spell_given('window', self.window)}."
            )
        if not 0 <= self.flaky[0] <= self.flaky[1] <= 1:
            raise BadInputError(
                "flaky must be two shares from 0 to 1, the lower one first. "
                f"Received: {self.flaky}."
            )
