"""Write the figures and the examples of docs/nightly.md, which nobody types.

A history of played nights, with drifts planted in it, is shown by the real commands;
and of many more it is counted what is told wrongly, and what is found.

    .venv/bin/python scripts/write_nightly.py
    .venv/bin/python scripts/write_nightly.py --history FILE    # the played one alone
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from measured import ROOT
from played_nights import draw_example, draw_nights

from distbench.history.drift import find_drifts
from distbench.history.limits import Limits
from distbench.history.store import History

PAGE = ROOT / "docs" / "nightly.md"
COMMANDS = (
    ("history",),
    ("history", "embedding-adam-*", "--last", "8"),
    ("compare", "previous", "last", "--time-ratio", "inf"),
)
_SEED, _NIGHTS = 4, 14
_PLACE = "nights/history.sqlite"
_PLAYED, _COUNT, _SCENARIOS = 50, 20, 30
_NOISE = ((0.05, 0.0), (0.1, 0.02), (0.2, 0.02), (0.3, 0.05))
"""Of a run, and how many of them take three times as long."""
_BUSY = 0.3
_SLOW = (1.6, 2.0, 3.0)


def play_history(file: Path) -> None:
    """Write a history of played nights."""
    file.parent.mkdir(parents=True, exist_ok=True)
    history = History(file)
    for night in draw_example(_SEED, _NIGHTS):
        history.add(night)


def show_commands() -> str:
    """What the commands print of the played history, as in a terminal."""
    blocks = []
    with tempfile.TemporaryDirectory() as folder:
        play_history(Path(folder) / _PLACE)
        for words in COMMANDS:
            done = subprocess.run(
                [sys.executable, "-m", "distbench", *words],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode not in (0, 1):
                raise RuntimeError(done.stderr)
            typed = " ".join(f"'{word}'" if "*" in word else word for word in words)
            lines = [line.rstrip() for line in done.stdout.splitlines()]
            blocks.append("\n".join([f"$ distbench {typed}", *lines]))
    played = f"<!-- first: python scripts/write_nightly.py --history {_PLACE} -->\n"
    return played + "```console\n" + "\n\n".join(blocks) + "\n```"


def count_drifts() -> str:
    """A table of what is told wrongly and what is found, by the noise of the times."""
    lines = [
        "| noise of a run | runs that take 3 times as long | told wrongly | "
        + " | ".join(f"found, {slow:g} times as slow" for slow in _SLOW)
        + " |",
        "|---|---|---|" + "---|" * len(_SLOW),
    ]
    for sigma, spike in _NOISE:
        wrong = sum(len(_tell(seed, sigma, spike, 1.0)) for seed in range(_PLAYED))
        found = [
            sum("s0" in _tell(seed, sigma, spike, slow) for seed in range(_PLAYED))
            for slow in _SLOW
        ]
        cells = [f"{100 * sigma:.0f} %", f"{100 * spike:.0f} %"]
        cells.append(f"{wrong} of {_PLAYED * _SCENARIOS}")
        cells += [f"{number} of {_PLAYED}" for number in found]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _tell(seed: int, sigma: float, spike: float, slow: float) -> list[str]:
    """Scenarios of which a drift of the times is told; one is slow for two nights."""

    def slow_down(scenario: int, night: int) -> float:
        return slow if scenario == 0 and night >= _COUNT - 2 else 1.0

    nights = draw_nights(
        seed,
        _COUNT,
        _SCENARIOS,
        sigma=sigma,
        night_sigma=_BUSY,
        spike=spike,
        slow=slow_down,
    )
    drifts = find_drifts(nights, Limits())
    return [drift.key.scenario if drift.key else "all" for drift in drifts]


def list_limits() -> str:
    """The limits and their defaults, as the options call them."""
    limits = Limits()
    low, high = (f"{100 * share:g}" for share in limits.flaky)
    rows: Mapping[str, tuple[object, str]] = {
        "--last": (limits.window, "nights that are looked at"),
        "--least": (limits.least, "earlier runs without which nothing is said"),
        "--error-ratio": (limits.error_ratio, "growth of error / bound that is told"),
        "--time-ratio": (limits.time_ratio, "growth of seconds that is told"),
        "--floor": (limits.floor_s, "seconds by which a time has to grow at least"),
        "--spread": (limits.spread, "standard deviations beyond which a drift lies"),
        "--confirm": (limits.confirm, "last runs that all have to be slow"),
        "--flaky": (f"{low},{high}", "percent of runs that fail of a flaky scenario"),
    }
    lines = ["| option | default | |", "|---|---|---|"]
    lines += [
        f"| `{name}` | {value} | {text} |" for name, (value, text) in rows.items()
    ]
    return "\n".join(lines)


PARTS = {"commands": show_commands, "limits": list_limits, "drifts": count_drifts}


def write_parts(page: str, names: Sequence[str] = tuple(PARTS)) -> str:
    """The page with some of its parts written anew."""
    for name in names:
        begin, end = f"<!-- {name} -->\n", f"\n<!-- /{name} -->"
        before, found, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise RuntimeError(f"{PAGE} has no place for '{name}'")
        page = before + begin + PARTS[name]() + end + after
    return page


def main() -> None:
    """Write all parts, or the history that they show."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--history", type=Path, metavar="FILE")
    if file := parser.parse_args().history:
        play_history(file)
    else:
        PAGE.write_text(write_parts(PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
