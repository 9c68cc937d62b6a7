"""Compare the verdicts of two commits on the same scenarios, number by number.

No speed is bought with checks left out: whoever makes the bench faster shows so that it
still says the same. Faults and correct programs of the selftest are checked; all that
their verdicts say is kept, but for what a run costs.

    git worktree add ../before COMMIT
    PYTHONPATH=../before python scripts/same_verdicts.py --every 7 --write before.json
    python scripts/same_verdicts.py --every 7 --against before.json

With `--ahead` each check has tasks that were started before, as with `--watch`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import distbench
from distbench.checking.check import check_target
from distbench.launch.spares import Spares
from distbench.options import CheckOptions
from distbench.selftest.run import Item, plan_selftest
from distbench.target import parse_target
from distbench.verdict.document import verdict_to_json

_ROOT = str(Path(distbench.__file__).parents[1])
_COSTS = ("seconds", "disk_bytes")
"""What a run says of itself that is no verdict."""


def _name(item: Item) -> str:
    return f"{item.sample.name} on {item.cluster}"


def check(item: Item, spares: Spares | None = None) -> list[dict[str, Any]]:
    """The runs of a sample on its cluster, as JSON.

    Args:
        item: The sample and the cluster.
        spares: Has the tasks of a check that waits for them; None starts them for it.
    """
    sample = item.sample
    options = CheckOptions(
        clusters=(item.cluster,),
        tiers=("exact", "bounded") if sample.in_flight == 1 else ("bounded",),
        workloads=() if sample.workload is None else (sample.workload,),
        in_flight=sample.in_flight,
    )
    target = parse_target(sample.target)
    if spares is not None:
        check_target(target, options, spares=spares)
        spares.fill()
    text = verdict_to_json(check_target(target, options, spares=spares))
    document = json.loads(text.replace(_ROOT, "."))
    return [
        {name: value for name, value in run.items() if name not in _COSTS}
        for run in document["runs"]
    ]


def find_differences(left: Any, right: Any, place: str = "") -> Iterator[str]:
    """Where two JSON documents differ."""
    if isinstance(left, dict) and isinstance(right, dict):
        for name in sorted({*left, *right}):
            yield from find_differences(
                left.get(name), right.get(name), f"{place}.{name}"
            )
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for number, (one, other) in enumerate(zip(left, right, strict=True)):
            yield from find_differences(one, other, f"{place}[{number}]")
    elif left != right:
        yield f"{place}: {left!r} was expected, and it is {right!r}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Check, and write or compare."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("-c", "--cluster", action="append", default=[])
    parser.add_argument("--every", type=int, default=1, metavar="N")
    parser.add_argument("--ahead", action="store_true")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--write", type=Path, metavar="FILE")
    how.add_argument("--against", type=Path, metavar="FILE")
    given = parser.parse_args(arguments)
    items = plan_selftest((), tuple(given.cluster))[:: given.every]
    known = json.loads(given.against.read_text("utf-8")) if given.against else {}
    if given.against:
        lacking = [item for item in items if _name(item) not in known]
        items = [item for item in items if _name(item) in known]
        print(f"{given.against} lacks {len(lacking)}: {list(map(_name, lacking))}")
    found: dict[str, Any] = {}
    wrong = 0
    with Spares() as spares:
        for number, item in enumerate(items, 1):
            name = _name(item)
            found[name] = check(item, spares if given.ahead else None)
            told = list(find_differences(known[name], found[name])) if known else []
            wrong += bool(told)
            print("\n  ".join([f"[{number}/{len(items)}] {name}", *told]), flush=True)
            if given.write:
                given.write.write_text(json.dumps(found, indent=1), encoding="utf-8")
    if known:
        print(f"{len(items) - wrong} of {len(items)} verdicts are equal")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
