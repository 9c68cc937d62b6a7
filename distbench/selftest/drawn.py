"""Faults and programs that are drawn at random: which are run, and what is told."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from distbench.errors import BadInputError
from distbench.faults.generated import generate
from distbench.faults.generated.generate import MODULE, MOST
from distbench.selftest.matrix import (
    describe_alarms,
    describe_result,
    describe_share,
    mark_cell,
    score_to_json,
)
from distbench.selftest.run import Item
from distbench.selftest.score import Cell, Passed, Score
from distbench.unusual import Unusual
from distbench.verdict import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeds:
    """Which seeds are run.

    Attributes:
        first: The first one.
        count: How many, one after the other.
    """

    first: int
    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise BadInputError(f"--random must be 1 or more. Received: {self.count}.")
        if not 0 <= self.first <= MOST - self.count:
            raise BadInputError(
                "--from-seed must be 0 or more, and the last seed below 2**31. "
                f"Received: {self.first}."
            )


def plan_drawn(seeds: Seeds) -> tuple[Item, ...]:
    """Of each seed the fault, and the same program without it."""
    items = []
    for seed in range(seeds.first, seeds.first + seeds.count):
        made = generate(seed)
        clean = Unusual(
            name=f"clean_{seed}",
            clusters=(made.cluster,),
            target=f"{MODULE}:clean_{seed}",
            summary=f"{made.facts.plan.describe()}.",
        )
        items.append(Item(sample=made.fault, cluster=made.cluster))
        items.append(Item(sample=clean, cluster=made.cluster))
    return tuple(items)


def describe_drawn(result: Cell | Passed) -> str:
    """One line on what just ran; of what failed also how to run it again."""
    if is_right(result):
        return describe_result(result)
    return f"{describe_result(result)}; again: {write_command(result)}"


def is_right(result: Cell | Passed) -> bool:
    """Whether nothing is wrong with a result."""
    if isinstance(result, Cell):
        return mark_cell(result) in ("ok", "-")
    return result.status in (Status.PASS, Status.SKIPPED)


def write_command(result: Cell | Passed) -> str:
    """The command that runs one of them again."""
    name = result.fault if isinstance(result, Cell) else result.program
    return f"distbench check {MODULE}:{name} -c {result.cluster}"


def render_drawn(score: Score) -> RenderableType:
    """What went wrong, with what was expected, and the shares."""
    parts: list[RenderableType] = []
    results: list[Cell | Passed] = [*score.faults, *score.unusual]
    for result in results:
        if not is_right(result):
            parts += [Text(line) for line in _list_lines(result)]
    if score.faults:
        for name, share in score.measure_shares().items():
            parts.append(Text(describe_share(name, share, score)))
    parts.append(Text(describe_alarms(score)))
    parts.append(Text("passed" if score.ok else "FAILED"))
    return Group(*parts)


def _list_lines(result: Cell | Passed) -> list[str]:
    lines = [describe_result(result)]
    if isinstance(result, Cell):
        fault = generate(int(result.fault.rpartition("_")[2])).fault
        names = ", ".join(fault.variables)
        where = f"{fault.phase} of '{names}'" if names else fault.phase
        lines += [f"  {fault.summary}", f"  expected {fault.code}, {where}"]
    lines += [f"  found {found}" for found in result.found or ("nothing",)]
    return [*lines, f"  {write_command(result)}"]


def drawn_to_json(score: Score, seeds: Seeds) -> str:
    """The document of a selftest, with what was drawn under `random`."""
    document = json.loads(score_to_json(Score(faults=(), unusual=())))
    document["ok"] = score.ok
    document["random"] = {
        "from_seed": seeds.first,
        "count": seeds.count,
        "faults": [{**asdict(c), "status": c.status.value} for c in score.faults],
        "clean": [{**asdict(p), "status": p.status.value} for p in score.unusual],
        "shares": score.measure_shares(),
        "false_alarms": len(score.false_alarms),
    }
    return json.dumps(document, indent=1, allow_nan=False)
