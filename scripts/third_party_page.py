"""What `check_third_party.py` saw, and the page that it writes about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from third_party_cases import Expected, Package, Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run of `distbench check`, beside what was expected of it."""

    subject: Subject
    expected: Expected
    run: Mapping[str, Any]

    @property
    def finding(self) -> Mapping[str, Any]:
        """The first finding: the one to fix."""
        return next(iter(self.run["findings"]), {})

    @property
    def differs(self) -> bool:
        """Whether something else came out than expected."""
        expected, finding = self.expected, self.finding
        seen = tuple(finding.get(key, "") for key in ("code", "phase", "origin"))
        return (
            self.run["status"] != expected.status
            or seen != (expected.code, expected.phase, expected.origin)
            or not any(
                _is_name(finding.get("variable", ""), name)
                for name in expected.variables
            )
        )


def _is_name(variable: str, ending: str) -> bool:
    # Every name ends with "", which stands for none: the loss, or no finding.
    return variable.endswith(ending) if ending else not variable


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one package showed."""

    package: Package
    commands: tuple[str, ...]
    versions: str
    quotes: tuple[str, ...]
    rows: tuple[Row, ...]


_HEAD = """\
<!-- Written by scripts/check_third_party.py. -->

# Optimizers from PyPI

Optimizers that nobody here wrote, as `distbench check` judges them, each package in an
environment of its own. Below each, the same code with one bug planted by hand
(`scenarios/third_party/planted.py`): a pass is worth as much as the bugs that the bench
finds in the same place.

<!-- not run: it makes an environment for each package, and takes an hour -->
```console
$ .venv/bin/python scripts/check_third_party.py
```

makes the environments, runs all of it, compares every row with what is expected of it
(`scripts/third_party_cases.py`), writes this page, and exits with 1 if a row differs.
On parameter servers every replica's step is a global batch of its own, so nothing is
summed there. `skipped` is the bench's embedding under an optimizer without a rule for
sparse gradients. Seconds are wall time on the machine of the last run, shared evenly by
the tiers of a scenario.
"""
_COLUMNS = (
    "optimizer",
    "workload",
    "cluster",
    "tier",
    "verdict",
    "code",
    "phase",
    "variable",
    "replicas",
    "origin",
    "s",
)


def make_page(outcomes: Sequence[Outcome]) -> str:
    """The page in Markdown."""
    sections = [_HEAD, _tell_total(outcomes)]
    sections += [_make_section(outcome) for outcome in outcomes]
    return "\n".join(sections)


def _tell_total(outcomes: Sequence[Outcome]) -> str:
    rows = [row for outcome in outcomes for row in outcome.rows]
    differing = sum(row.differs for row in rows)
    told = "all as expected" if not differing else f"**{differing} not as expected**"
    return f"{len(rows)} rows, {told}.\n"


def _make_section(outcome: Outcome) -> str:
    lines = [
        f"## {outcome.package.name}",
        "",
        f"{outcome.versions}. Installed in the checkout by",
        "",
        "<!-- not run: scripts/check_third_party.py does it, in other words -->",
        "```sh",
        *(f"pip install {words}" for words in outcome.commands),
        "```",
        "",
        outcome.package.belief.strip(),
        "",
        *outcome.quotes,
        "",
        f"| {' | '.join(_COLUMNS)} |",
        f"|{'---|' * len(_COLUMNS)}",
        *_make_rows(outcome.rows),
        "",
    ]
    return "\n".join(lines)


def _make_rows(rows: Sequence[Row]) -> Iterator[str]:
    last = None
    for row in rows:
        # Named once, so that the eye finds where the next one begins.
        label = row.subject.label if row.subject != last else ""
        last = row.subject
        run, finding = row.run, row.finding
        cells = (
            label,
            run["workload"],
            run["cluster"],
            run["tier"],
            f"{run['status']} (**expected {row.expected}**)"
            if row.differs
            else run["status"],
            finding.get("code", ""),
            finding.get("phase", ""),
            finding.get("variable", ""),
            ", ".join(str(replica) for replica in finding.get("replicas", ())),
            finding.get("origin", ""),
            f"{run['seconds']:.1f}",
        )
        yield f"| {' | '.join(cells)} |"
