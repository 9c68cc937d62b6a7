"""From a seed to a program and the same program with a mistake."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from distbench.errors import BadInputError
from distbench.faults.fault import Fault
from distbench.faults.generated.facts import Facts, are_telling, make_facts
from distbench.faults.generated.mistake import MISTAKES, Drawn, Mistake
from distbench.samples.drawn.problem import Random
from distbench.samples.drawn.program import DrawnProgram, make_program
from distbench.samples.drawn.training import draw_plan

CLUSTERS = ("mirrored:2", "mirrored:3", "mwms:2")
MODULE = "distbench.faults.generated"
MOST = 1 << 31
"""Seeds are below it."""
_TRIALS = 2000
"""Programs that are drawn for a kind of mistake before another kind is."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Generated:
    """What a seed gives.

    Attributes:
        seed: The seed.
        facts: The correct program on its cluster.
        mistake: Kind of the mistake.
        drawn: Its numbers.
        fault: What has to be said of it.
    """

    seed: int
    facts: Facts
    mistake: Mistake
    drawn: Drawn
    fault: Fault

    @property
    def cluster(self) -> str:
        """The cluster on which it is to be run."""
        return self.facts.cluster

    def make_clean(self) -> type[DrawnProgram]:
        """The correct program."""
        return make_program(self.facts.plan, f"Clean{self.seed}")

    def make_faulty(self) -> type[DrawnProgram]:
        """The clean program with the mistake put in."""
        kind, numbers = self.mistake, dict(self.drawn.numbers)
        mixins: tuple[type, ...] = ()
        if kind.rule is not None:
            mixins = (type(kind.rule.__name__, (kind.rule,), numbers),)
        return make_program(
            self.facts.plan,
            f"Fault{self.seed}",
            (kind.program,),
            mixins=mixins,
            **numbers,
        )


@cache
def generate(seed: int) -> Generated:
    """The program and the mistake of a seed, always the same.

    Raises:
        BadInputError: The seed is negative or too large.
    """
    if not 0 <= seed < MOST:
        raise BadInputError(f"A seed must be from 0 to 2**31 - 1. Received: {seed}.")
    rng = np.random.default_rng(seed)
    facts, kind, drawn = _draw(rng)
    fault = _make_fault(seed, facts, kind, drawn)
    return Generated(seed=seed, facts=facts, mistake=kind, drawn=drawn, fault=fault)


def _draw(rng: Random) -> tuple[Facts, Mistake, Drawn]:
    """A kind of mistake, then programs until one can have it: so none is rare."""
    while True:
        kind = MISTAKES[int(rng.integers(len(MISTAKES)))]
        for _ in range(_TRIALS):
            facts = make_facts(draw_plan(rng), str(rng.choice(CLUSTERS)))
            if are_telling(facts):
                drawn = kind.draw(rng, facts)
                if drawn is not None:
                    return facts, kind, drawn


def _make_fault(seed: int, facts: Facts, kind: Mistake, drawn: Drawn) -> Fault:
    numbers = ", ".join(
        f"{name} {_write(value)}"
        for name, value in drawn.numbers.items()
        if value != facts.names
    )
    summary = " ".join((kind.program.__doc__ or "").split()).rstrip(".")
    return Fault(
        name=f"fault_{seed}",
        code=drawn.code or kind.code,
        phase=drawn.phase or kind.phase,
        variables=drawn.variables,
        replicas=drawn.replicas,
        clusters=(facts.cluster,),
        like=kind.like,
        target=f"{MODULE}:fault_{seed}",
        summary=f"{summary}{f' ({numbers})' if numbers else ''}.",
        warning=kind.warning,
    )


def _write(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
