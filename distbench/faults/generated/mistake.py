"""A mistake that can be put into a drawn program, and what it must be called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from distbench.faults.generated.facts import Facts
from distbench.samples.drawn.problem import Random


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A mistake with its numbers.

    Attributes:
        variables: Paths that it concerns; `("",)` for the loss.
        replicas: Replicas that it concerns; None for whichever show it.
        numbers: Attributes of the faulty program and of its optimizers.
        code: Finding code, where it depends on what was drawn.
        phase: Phase, where it does.
    """

    variables: tuple[str, ...]
    replicas: tuple[int, ...] | None = None
    numbers: Mapping[str, Any] = field(default_factory=dict)
    code: str = ""
    phase: str = ""


class Draw(Protocol):
    """Draws the numbers of a mistake; None where a program cannot have it."""

    def __call__(self, rng: Random, facts: Facts) -> Drawn | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """A kind of mistake.

    Attributes:
        name: Name of its class.
        code: Finding code that it must get.
        phase: Phase in which it must be found.
        like: The real bug that it is modelled on, as `owner/repo#N`.
        draw: Draws its numbers.
        program: Methods that replace those of the program.
        rule: Methods that replace those of its optimizers.
        warning: Whether it is told by a warning and passes.
    """

    name: str
    code: str
    phase: str
    like: str
    draw: Draw
    program: type
    rule: type | None
    warning: bool = False


MISTAKES: list[Mistake] = []
"""All kinds, in the order of definition."""

Subject = TypeVar("Subject", bound=type)


def mistake(
    code: str, phase: str, *, like: str, warning: bool = False
) -> Callable[[Subject], Subject]:
    """Register a class as a kind of mistake.

    Its `draw(rng, facts)` is static, its other methods replace those of the program,
    and those of its inner class `Rule`, if it has one, those of the optimizers. What
    was drawn are attributes of both.
    """

    def register(subject: Subject) -> Subject:
        MISTAKES.append(
            Mistake(
                name=subject.__name__,
                code=code,
                phase=phase,
                like=like,
                draw=subject.draw,
                program=subject,
                rule=getattr(subject, "Rule", None),
                warning=warning,
            )
        )
        return subject

    return register
