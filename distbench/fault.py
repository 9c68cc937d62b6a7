"""Faults that a scenario injects: what befalls a task or a replica, and at which step.

These are for users who want to see how their training takes a lost or slow worker, a
lost batch or a corrupt gradient. The mistakes in programs that the bench's own tests
plant are something else: `distbench.faults`.
"""

from __future__ import annotations

import difflib
import math
import operator
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from distbench.cluster import ALL, ClusterSpec, Task, spell_kinds
from distbench.errors import BadInputError, find_near, suggest
from distbench.spelling import spell_given

Kind = Literal["kill", "restart", "stop", "delay", "drop", "nan", "scale", "flip"]
Sufferer = Literal["worker", "ps", "chief", "replica"]

GRAMMAR = (
    "kill:TASK@STEP | restart:TASK@STEP | stop:TASK@STEP | stop:TASK@STEP..STEP | "
    "delay=SECONDS:TASK@STEP | drop:replica:R@STEP | nan:replica:R@STEP | "
    "scale=FACTOR:replica:R@STEP | flip=BIT:replica:R@STEP, where TASK is worker:I, "
    "ps:I or chief:0, and numbers begin with 0"
)
OF_TASKS = ("kill", "restart", "stop", "delay")
"""Kinds that befall a process; the others befall a replica's numbers."""
OF_GRADIENTS = ("nan", "scale", "flip")
_AMOUNTS = {"delay": "SECONDS", "scale": "FACTOR", "flip": "BIT"}
_NUMBER = r"-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?"
_PATTERN = re.compile(
    rf"(?P<kind>[a-z]+)(?:=(?P<amount>{_NUMBER}))?:(?P<role>[a-z]+):(?P<rank>[0-9]+)"
    r"@(?P<step>[0-9]+)(?:\.\.(?P<until>[0-9]+))?"
)
_SHAPES = (
    "kill:worker:#@#",
    "kill:ps:#@#",
    "kill:chief:#@#",
    "restart:worker:#@#",
    "restart:ps:#@#",
    "stop:worker:#@#",
    "stop:ps:#@#",
    "stop:worker:#@#..#",
    "delay=#:worker:#@#",
    "delay=#:ps:#@#",
    "drop:replica:#@#",
    "nan:replica:#@#",
    "scale=#:replica:#@#",
    "flip=#:replica:#@#",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What befalls one task or replica of a cluster at one step.

    Made by `kill`, `stop`, `delay`, `drop` and `corrupt`; its text (`str`, `parse`) is
    what the command line takes and what verdicts show.

    Attributes:
        kind: `kill`, `restart` (killed and started again), `stop`, `delay`, `drop`,
            `nan`, `scale` or `flip`.
        role: What `rank` counts: tasks of a role, or replicas.
        rank: The number of the task or replica, from 0.
        step: The step at whose beginning it happens, from 0.
        amount: Seconds of a delay, factor of a scale, number of a flipped bit from the
            lowest; None where the kind has none.
        until: The step with which a stopped task goes on; None: never.
    """

    kind: Kind
    rank: int
    step: int
    role: Sufferer = "worker"
    amount: float | None = None
    until: int | None = None

    def __post_init__(self) -> None:
        self._take_numbers()
        roles = ("worker", "ps", "chief") if self.kind in OF_TASKS else ("replica",)
        wrong = (
            self.kind not in (*OF_TASKS, "drop", *OF_GRADIENTS)
            or self.role not in roles
            or (self.amount is None) == (self.kind in _AMOUNTS)
            or (self.until is not None and self.kind != "stop")
        )
        if wrong:
            raise _make_grammar_error(str(self))
        if self.rank < 0 or self.step < 0:
            raise BadInputError(f"Fault '{self}': rank and step begin with 0.")
        if self.until is not None and self.until <= self.step:
            raise BadInputError(
                f"Fault '{self}': the task must go on with a later step than the one "
                f"it is stopped with. Received: {self.until} after {self.step}."
            )
        if self.amount is not None:
            self._check_amount(self.amount)

    def _take_numbers(self) -> None:
        """Take NumPy's numbers as Python's, as which alone a text has them."""
        try:
            for name in ("rank", "step", "until"):
                if (value := getattr(self, name)) is not None:
                    object.__setattr__(self, name, operator.index(value))
            if self.amount is not None:
                object.__setattr__(self, "amount", float(self.amount))
        except (TypeError, ValueError, OverflowError):
            raise _make_grammar_error(str(self)) from None

    def _check_amount(self, amount: float) -> None:
        if self.kind == "delay" and not 0 < amount < math.inf:
            raise BadInputError(
                f"Fault '{self}': a delay must be a positive number of seconds."
            )
        if self.kind == "flip" and not (0 <= amount < 64 and amount == int(amount)):
            raise BadInputError(
                f"Fault '{self}': bits are numbered from 0 to 63, the lowest first."
            )
        if self.kind == "scale" and (amount == 1 or not math.isfinite(amount)):
            raise BadInputError(
                f"Fault '{self}': a factor must be a finite number other than 1."
            )

    @classmethod
    def kill(
        cls, rank: int, step: int, *, role: Sufferer = "worker", restart: bool = False
    ) -> Fault:
        """A task that is killed by SIGKILL.

        Args:
            rank: Which task of the role.
            step: The step that it dies at.
            role: `worker`, `ps` or `chief`.
            restart: Whether it is started again at its address, as a cluster manager
                does; only what serves a coordinator can come back so.
        """
        kind: Kind = "restart" if restart else "kill"
        return cls(kind=kind, rank=rank, step=step, role=role)

    @classmethod
    def stop(
        cls,
        rank: int,
        step: int,
        *,
        role: Sufferer = "worker",
        until: int | None = None,
    ) -> Fault:
        """A task that stands still: for ever, or under `ps` until a later step."""
        return cls(kind="stop", rank=rank, step=step, role=role, until=until)

    @classmethod
    def delay(
        cls, rank: int, step: int, seconds: float, *, role: Sufferer = "worker"
    ) -> Fault:
        """A task that stands still for so many seconds."""
        return cls(kind="delay", rank=rank, step=step, role=role, amount=seconds)

    @classmethod
    def drop(cls, rank: int, step: int) -> Fault:
        """A replica that trains on no example in a step; `rank` counts replicas."""
        return cls(kind="drop", rank=rank, step=step, role="replica")

    @classmethod
    def corrupt(
        cls,
        rank: int,
        step: int,
        *,
        factor: float | None = None,
        bit: int | None = None,
    ) -> Fault:
        """A replica whose gradients come wrong out of its tapes in a step.

        Args:
            rank: Which replica.
            step: The number of the step.
            factor: Multiplies all of its gradients.
            bit: This bit of the first element of its first gradient is flipped. With
                neither, that element is NaN.

        Raises:
            BadInputError: Both are given.
        """
        if factor is not None and bit is not None:
            raise BadInputError(
                "A gradient is corrupted by a factor or a bit. Received: both."
            )
        amount = factor if bit is None else float(bit)
        kind: Kind = "nan" if amount is None else "flip" if factor is None else "scale"
        return cls(kind=kind, rank=rank, step=step, role="replica", amount=amount)

    @classmethod
    def parse(cls, text: str) -> Fault:
        """Parse a text such as `kill:worker:1@2`.

        Raises:
            BadInputError: It is none; the message gives the grammar and the nearest
                valid form.
        """
        match = _PATTERN.fullmatch(text.strip())
        if match is None:
            raise _make_grammar_error(text)
        parts = match.groupdict()
        try:
            return cls(
                kind=parts["kind"],  # type: ignore[arg-type]  # checked there
                role=parts["role"],  # type: ignore[arg-type]
                rank=int(parts["rank"]),
                step=int(parts["step"]),
                amount=None if parts["amount"] is None else float(parts["amount"]),
                until=None if parts["until"] is None else int(parts["until"]),
            )
        except BadInputError:
            raise
        except (OverflowError, ValueError):  # of too many digits
            raise _make_grammar_error(text) from None

    def __str__(self) -> str:
        amount = "" if self.amount is None else f"={self.amount!r}".removesuffix(".0")
        until = "" if self.until is None else f"..{self.until}"
        place = f"{self.role}:{self.rank}@{self.step}{until}"
        return f"{self.kind}{amount}:{place}"

    @property
    def task(self) -> Task | None:
        """The task that it befalls; None for one that befalls a replica."""
        if self.role == "replica":
            return None
        return Task(role=self.role, index=self.rank)


def _make_grammar_error(text: str) -> BadInputError:
    """The error for a text that is no fault: grammar and nearest valid form."""
    hint = suggest(_find_nearest(text))
    return BadInputError(f"Fault {text!r} is not known. Expected {GRAMMAR}.{hint}")


def _find_nearest(text: str) -> list[str]:
    """The form that is nearest to a text, with its numbers; none for no known kind."""
    numbers = re.findall(r"[0-9]+(?:\.[0-9]+)?", text)
    shape = re.sub(r"[0-9]+(?:\.[0-9]+)?", "#", text.lower())
    known = [shape.partition(":")[0].partition("=")[0] for shape in _SHAPES]
    kinds = find_near(re.split("[^a-z]", shape)[0], known)
    if not kinds:
        return []
    alike = [shape for shape in _SHAPES if shape.startswith(kinds[0])]
    nearest = difflib.get_close_matches(shape, alike, n=1, cutoff=0.0)[0]
    if "=" in nearest and "=" not in text:
        numbers.insert(0, "1" if nearest.startswith("flip") else "0.5")
    while "#" in nearest:
        nearest = nearest.replace("#", numbers.pop(0) if numbers else "1", 1)
    return [nearest]


def check_faults(
    texts: Iterable[str], spec: ClusterSpec, *, steps: int | None, in_flight: int
) -> None:
    """Raise BadInputError for faults that a scenario cannot have.

    Args:
        texts: The faults.
        spec: The cluster; numbers that are still open are not checked.
        steps: How many steps are run in all; None where nobody knows.
        in_flight: How many of them a coordinator schedules at once.
    """
    for fault in map(Fault.parse, texts):
        _check_sufferer(fault, spec)
        last = max(fault.step, fault.until or 0)
        if steps is not None and last >= steps:
            raise BadInputError(
                f"Fault '{fault}' needs step {last}, and there are steps 0 to "
                f"{steps - 1}. Ask for more steps, or name an earlier one."
            )
        if fault.task is None and in_flight > 1:
            raise BadInputError(
                f"Fault '{fault}' befalls a replica's numbers, and steps in flight are "
                "compared by what they leave behind together. Expected one step at a "
                f"time. Received: {spell_given('in_flight', in_flight)}."
            )


def _check_sufferer(fault: Fault, spec: ClusterSpec) -> None:
    if fault.task is None:
        count, names = spec.replicas, f"replica:0 to replica:{spec.replicas - 1}"
        is_open = ALL in (spec.workers, spec.replicas_per_worker)
        is_there = fault.rank < count
    else:
        is_open = spec.parameter_servers == ALL and spec.traits.has_servers
        is_open |= spec.workers == ALL
        is_there = fault.task in spec.tasks
        names = ", ".join(f"{task.role}:{task.index}" for task in spec.tasks)
    if not is_open and not is_there:
        raise BadInputError(
            f"Fault '{fault}': cluster '{spec}' has no {fault.role}:{fault.rank}. "
            f"Expected one of {names}."
        )
    serves = spec.traits.scheduled and fault.role in ("worker", "ps")
    if (fault.kind == "restart" or fault.until is not None) and not serves:
        what = "come back" if fault.kind == "restart" else "be waited past"
        raise BadInputError(
            f"Fault '{fault}': on cluster '{spec}' no task can {what}, since the "
            "others wait for it in their next sum. Expected a worker or parameter "
            f"server of {spell_kinds(lambda kind: kind.scheduled)}, or kill, stop for "
            "good, or delay."
        )
