"""Nights to keep and to compare, without a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

from distbench.history.night import Key, Night, Row
from distbench.verdict import Status

FIRST = datetime(2026, 1, 1, 1, 0, tzinfo=timezone.utc)
MACHINE = {"tensorflow": "2.21.0", "machine": {"cpu": "a", "cores": 2, "gpus": []}}


def make_key(name: str = "linear-adam-mwms:2-default", **changes) -> Key:
    return Key(
        **{"target": "adam.py:make", "scenario": name, "tier": "bounded"} | changes
    )


def make_row(name: str = "linear-adam-mwms:2-default", **changes) -> Row:
    settings = {
        "key": make_key(name),
        "status": Status.PASS,
        "seconds": 4.0,
        "error_over_bound": 0.25,
    }
    return Row(**settings | changes)


def make_night(*rows: Row, number: int = 0, **changes) -> Night:
    settings = {
        "started": FIRST + timedelta(days=number),
        "target": "adam.py:make",
        "environment": MACHINE,
        "rows": rows,
    }
    return Night(**settings | changes)


def play_nights(lines: dict[str, Sequence[Row | None]]) -> list[Night]:
    """Nights from what each scenario did in them; None where it did not run."""
    counts = {len(line) for line in lines.values()}
    (count,) = counts
    return [
        make_night(
            *(line[n] for line in lines.values() if line[n] is not None), number=n
        )
        for n in range(count)
    ]
