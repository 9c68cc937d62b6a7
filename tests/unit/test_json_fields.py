"""The page of a verdict's fields has all of them, as their classes describe them."""

from __future__ import annotations

import json
from pathlib import Path

from imported_scripts import import_scripts
from verdict_samples import make_finding, make_run, make_verdict

from distbench.verdict import Outcome
from distbench.verdict.document import verdict_to_json

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "json-fields.md"
OUTCOME = Outcome(
    phase="loss",
    step=0,
    variable="",
    index=-1,
    element=(),
    replica=-1,
    expected=1.0,
    observed=2.0,
    bound=0.0,
)


def test_the_page_is_up_to_date() -> None:
    with import_scripts("write_json_fields") as scripts:
        written = PAGE.read_text("utf-8")
        text = scripts["write_json_fields"].make_page()
        assert written == text, "run scripts/write_json_fields.py"
    assert [line for line in written.splitlines() if line.endswith("|  |")] == []


def test_every_key_that_is_written_is_described() -> None:
    finding = make_finding(outcome=OUTCOME)
    verdict = make_verdict(make_run(findings=(finding,)))
    document = json.loads(verdict_to_json(verdict))
    (run,) = document["runs"]
    (found,) = run["findings"]
    page = PAGE.read_text("utf-8")
    for part in (document, run, found, found["outcome"]):
        assert [key for key in part if f"`{key}`" not in page] == []
