"""The verdict as JUnit XML, for the pages of CI systems."""

from __future__ import annotations

import math
from xml.etree import ElementTree

from distbench.escape import escape_controls
from distbench.report.words import name_place, name_target
from distbench.verdict import Run, Status, Verdict
from distbench.verdict.settings import list_settings

_TAGS: dict[Status, str] = {
    Status.FAIL: "failure",
    Status.ERROR: "error",
    # No judgement was reached: CI has to see it, and it is not the subject's fault.
    Status.UNDECIDABLE: "error",
    Status.VACUOUS: "error",
    Status.REFUSED: "skipped",
    Status.SKIPPED: "skipped",
}
_KEEP = "\n\t"


def verdict_to_junit(verdict: Verdict) -> str:
    """One test suite with a test case for each run."""
    tags = [_choose_tag(run) for run in verdict.runs]
    suite = ElementTree.Element(
        "testsuite",
        name="distbench",
        tests=str(len(tags)),
        failures=str(tags.count("failure")),
        errors=str(tags.count("error")),
        skipped=str(tags.count("skipped")),
        time=_format_seconds(sum(run.seconds for run in verdict.runs)),
    )
    if verdict.begun is not None:
        # In UTC; the schema that most readers have takes no zone.
        suite.set("timestamp", f"{verdict.begun:%Y-%m-%dT%H:%M:%S}")
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in list_settings(verdict.environment):
        ElementTree.SubElement(
            properties,
            "property",
            name=escape_controls(name),
            value=escape_controls(value),
        )
    for run in verdict.runs:
        _add_case(suite, verdict, run)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    body = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{body}\n'


def _add_case(suite: ElementTree.Element, verdict: Verdict, run: Run) -> None:
    case = ElementTree.SubElement(
        suite,
        "testcase",
        classname=escape_controls(name_target(verdict, run)),
        name=escape_controls(run.scenario + (f"[{run.tier}]" if run.tier else "")),
        time=_format_seconds(run.seconds),
    )
    tag = _choose_tag(run)
    if not tag:
        return
    codes = ", ".join(finding.code for finding in run.findings)
    outcome = ElementTree.SubElement(
        case,
        tag,
        type="quarantined" if run.quarantined else str(run.status),
        message=escape_controls(run.message or codes or str(run.status)),
    )
    lines = [
        f"{finding.code}: {name_place(finding)}\n{finding.explanation}"
        for finding in run.findings
    ]
    text = "\n\n".join([*lines, run.detail] if run.detail else lines)
    outcome.text = escape_controls(text, keep=_KEEP)


def _choose_tag(run: Run) -> str:
    """Empty for a pass; what is known to fail is shown as pytest shows an xfail."""
    return "skipped" if run.quarantined else _TAGS.get(run.status, "")


def _format_seconds(seconds: float) -> str:
    return f"{seconds if math.isfinite(seconds) else 0.0:.3f}"
