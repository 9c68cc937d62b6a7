"""The page on a user's own loop, held against the script and against runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import distbench
from distbench.verdict import Status, describe_verdict

pytestmark = pytest.mark.cluster
DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = DOCS / "examples"


def test_it_takes_under_20_lines() -> None:
    script = (EXAMPLES / "check_spirals.py").read_text("utf-8")
    subject = script[script.index("class") :].splitlines()
    assert len([line for line in subject if line.strip()]) < 20


def test_the_script_trains_on_two_workers() -> None:
    def train(folder: str) -> list[float]:
        import sys

        sys.path.insert(0, folder)
        import train_spirals

        return train_spirals.main(epochs=3)

    results = distbench.run(train, cluster="mwms:2", args=(str(EXAMPLES),))
    first, second = results.values()
    assert first == second
    assert first[-1] < first[0]


def test_the_loop_passes() -> None:
    verdict = distbench.check(f"{EXAMPLES}/check_spirals.py:Spirals", "mwms:2")
    assert verdict.status is Status.PASS, describe_verdict(verdict)


@pytest.mark.parametrize(
    ("name", "code"),
    [("OwnMean", "loss-not-scaled"), ("NotSharded", "examples-repeated")],
)
def test_its_mistakes_are_told_in_the_pages_words(name: str, code: str) -> None:
    target = f"{EXAMPLES}/check_mistakes.py:{name}"
    verdict = distbench.check(target, "mwms:2", tier="bounded")
    (finding,) = verdict.findings
    assert finding.code == code
    page = " ".join((DOCS / "your-own-loop.md").read_text("utf-8").split())
    quoted = _drop_bound(page.replace(" > ", " "))
    assert _drop_bound(finding.explanation) in quoted, describe_verdict(verdict)


def _drop_bound(text: str) -> str:
    """Without the measured noise, which is another one on another processor."""
    return re.sub(r"allowed [^,]+", "", text)
