"""Nights as they might be, to see what is told of them: noise, and what is planted."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

from distbench.history.night import Cause, Key, Night, Row
from distbench.verdict import Status

_FIRST = datetime(2026, 3, 1, 1, 17, tzinfo=timezone.utc)
_ENVIRONMENT = {
    "tensorflow": "2.21.0",
    "machine": {"cpu": "played", "cores": 32, "gpus": ["played"] * 8},
}


def never(scenario: int, night: int) -> float:
    """No scenario is slower in any night."""
    del scenario, night
    return 1.0


def draw_nights(
    seed: int,
    count: int,
    scenarios: int,
    *,
    sigma: float,
    night_sigma: float = 0.0,
    spike: float = 0.0,
    slow: Callable[[int, int], float] = never,
) -> list[Night]:
    """Nights whose times vary by logarithms that are normal.

    Args:
        seed: Of all numbers.
        count: Number of nights.
        scenarios: How many run in each.
        sigma: Standard deviation of each run's logarithm.
        night_sigma: The same of what a night's runs have in common.
        spike: Share of runs that take three times as long.
        slow: By how much a scenario is slower in a night.
    """
    rng = random.Random(seed)
    usual = [2.0 + 18.0 * rng.random() for _ in range(scenarios)]
    nights = []
    for number in range(count):
        busy = rng.lognormvariate(0.0, night_sigma)
        rows = []
        for scenario, seconds in enumerate(usual):
            noise = rng.lognormvariate(0.0, sigma) * (3 if rng.random() < spike else 1)
            factor = busy * noise * slow(scenario, number)
            rows.append(_make_row(f"s{scenario}", seconds=seconds * factor))
        nights.append(_make_night(number, rows))
    return nights


def draw_example(seed: int, count: int) -> list[Night]:
    """A month with a drift of either kind, a flaky scenario and a known failure.

    In the last night `embedding` comes three times as near to its bound; in the last
    two `mlp` takes twice as long; `linear` under parameter servers fails in two.
    """
    rng = random.Random(seed)
    known = Cause(code="raises", phase="build", variable="")
    nights = []
    for number in range(count):
        busy = rng.lognormvariate(0.0, 0.2)
        last = count - 1 - number

        def draw(name: str, seconds: float, error: float, **changes: Any) -> Row:
            noise = rng.lognormvariate(0.0, 0.1) * busy  # noqa: B023  # of this night
            error *= rng.lognormvariate(0.0, 0.05)
            return _make_row(
                name, seconds=seconds * noise, error_over_bound=error, **changes
            )

        flaky = Status.ERROR if last in (3, 7) else Status.PASS
        rows = [
            draw(f"linear-adam-mirrored:{size}@gpu-default", 1.5 * size, 0.3)
            for size in (1, 2, 3, 4, 6, 8)
        ]
        rows += [
            draw("mlp-adam-mwms:2x4@gpu-default", 6.0 * (2 if last < 2 else 1), 0.2),
            draw("embedding-adam-mwms:8@gpu-default", 9.0, 0.12 if last else 0.36),
            draw(
                "linear-adam-ps:2+1-default",
                3.0,
                0.25,
                status=flaky,
                message="" if flaky is Status.PASS else "worker-1 died: no free port",
            ),
            draw(
                "embedding-lazy_adam-mirrored:8@gpu-user",
                2.0,
                0.0,
                status=Status.FAIL,
                causes=(known,),
                message="quarantined until 2026-06-30 (sparse sums): upstream",
                quarantined=True,
            ),
        ]
        nights.append(_make_night(number, rows))
    return nights


def _make_row(name: str, **changes: Any) -> Row:
    key = Key(target="optimizers/adam.py:make_adam", scenario=name, tier="bounded")
    return Row(**{"key": key, "status": Status.PASS, "seconds": 1.0, **changes})


def _make_night(number: int, rows: list[Row]) -> Night:
    return Night(
        started=_FIRST + timedelta(days=number),
        target="nightly",
        environment=_ENVIRONMENT,
        rows=tuple(rows),
    )
