"""The form in which every finding code is explained."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """One finding code, explained to somebody who has just met it.

    In the formulas r is a replica, N the number of replicas, G the number of examples
    of the global batch, n_r that of replica r, g_r the gradient of replica r.

    Attributes:
        name: The code.
        phases: Phases in which it can show first; empty if it has no phase.
        signature: What the bench measures.
        meaning: Plain words: what is wrong and what follows from it.
        mathematics: Expected against observed, at most three lines.
        wrong: Typical code that causes it; empty where no code of the user's does.
        right: The same code, mended.
        confirm: How to be sure that it is this.
        fix: What to do.
        fix_alone: What to do where each step is that of a single replica, as on
            parameter servers: variables have no copies there, and workers have no
            replicas to share with. Empty where it is the same.
        warning: The run passes all the same.
    """

    name: str
    phases: tuple[str, ...]
    signature: str
    meaning: str
    mathematics: str
    wrong: str = ""
    right: str = ""
    confirm: str
    fix: str
    warning: bool = False
    fix_alone: str = ""

    def advise(self, *, alone: bool) -> str:
        """What to do.

        Args:
            alone: Whether a step is that of a single replica.
        """
        return self.fix_alone if alone and self.fix_alone else self.fix
