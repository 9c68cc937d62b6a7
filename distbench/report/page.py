"""The report as one HTML page that needs nothing else: no network, no other file.

Plots are drawn by Bokeh: its scripts run under a policy without `eval` and are smaller
than those of Plotly, which draws such plots too.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distbench.codes import CODES
from distbench.escape import escape_controls
from distbench.options import CheckOptions
from distbench.report.matrix import make_matrix
from distbench.report.tables import (
    LEVEL_NAMES,
    Table,
    make_finding_tables,
    make_run_tables,
)
from distbench.report.words import (
    Sighting,
    collect_findings,
    collect_remarks,
    count_runs,
    describe_environment,
    format_command,
    format_number,
    name_origin,
    name_place,
    name_run,
)
from distbench.verdict import Run, Status, Verdict
from distbench.verdict.settings import list_settings

if TYPE_CHECKING:
    from jinja2 import Environment

MOST_BYTES = 6_000_000
"""What a page may take; beyond it the numbers of runs that passed are left out."""
_NOTE_BYTES = 200
"""At least what stands in the place of a part that is left out."""
_LIBRARY = ("bokeh.min.js", "bokeh-api.min.js")
_WEB = Path(__file__).parent / "web"


def verdict_to_html(verdict: Verdict, options: CheckOptions) -> str:
    """The page: tables that can be read without scripts, plots and filters with them.

    Args:
        verdict: What to show; its runs' details, if they have any, become plots.
        options: Those of the check, for the commands that reproduce a finding.
    """
    environment = _make_environment()
    library = _read_library()
    scripts = [_read_own("filter.js")]
    if library:
        scripts = [*library, *scripts, _read_own("plots.js")]
    findings = _describe_findings(verdict, options)
    context = {
        "verdict": verdict,
        "counted": count_runs(verdict),
        "versions": describe_environment(verdict),
        "settings": list(list_settings(verdict.environment)),
        "matrix": make_matrix(verdict),
        "findings": findings,
        "remarks": _describe_remarks(verdict),
        "counts": _count(verdict),
        "clusters": list(dict.fromkeys(run.cluster for run in verdict.runs)),
        "codes": sorted({item["finding"].code for item in findings}),
        "levels": LEVEL_NAMES,
        "has_plots": bool(library),
        "policy": _make_policy(scripts),
        "style": _mark_safe(_read_own("page.css")),
        "scripts": [_mark_safe(script) for script in scripts],
    }
    page = environment.get_template("page.html.jinja")
    empty = page.render(**context, finding_parts={}, run_parts={})
    notes = _NOTE_BYTES * (len(findings) + len(verdict.runs))
    left = MOST_BYTES - len(empty.encode("utf-8", errors="backslashreplace")) - notes
    parts = _render_parts(environment, verdict, findings, left)
    return page.render(**context, **parts)


@cache
def _make_environment() -> Environment:
    import jinja2
    from markupsafe import Markup

    def finalize(value: Any) -> Any:
        # Autoescape makes markup of names harmless; what steers a terminal or turns
        # the direction of text is spelt out, as everywhere.
        if isinstance(value, str) and not isinstance(value, Markup):
            return escape_controls(value, keep="\n\t")
        return value

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_WEB),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = format_number
    environment.globals.update(name_run=name_run, code_of=CODES.get)
    return environment


def _describe_findings(verdict: Verdict, options: CheckOptions) -> list[dict[str, Any]]:
    numbers = {id(run): number for number, run in enumerate(verdict.runs, 1)}
    seen: dict[str, int] = {}
    described = []
    for sighting in collect_findings(verdict):
        code = sighting.finding.code
        # A code may come from a file: only what an address can hold goes into it.
        name = "".join(c for c in code if c.isascii() and (c.isalnum() or c == "-"))
        seen[name] = seen.get(name, 0) + 1
        described.append(
            {
                "id": f"finding-{name}" + (f"-{seen[name]}" if seen[name] > 1 else ""),
                "finding": sighting.finding,
                "runs": [(numbers[id(run)], run) for run in sighting.runs],
                "place": name_place(sighting.finding),
                "origin": name_origin(sighting.finding),
                "command": format_command(verdict.target, sighting.runs[0], options),
                "sighting": sighting,
            }
        )
    return described


def _describe_remarks(verdict: Verdict) -> list[dict[str, Any]]:
    """What is said in words; tracebacks are at their runs."""
    numbers = {id(run): number for number, run in enumerate(verdict.runs, 1)}
    return [
        {
            "status": remark.status,
            "message": remark.message,
            "runs": [(numbers[id(run)], run) for run in remark.runs],
        }
        for remark in collect_remarks(verdict)
        if remark.message
    ]


def _render_parts(
    environment: Environment,
    verdict: Verdict,
    findings: list[dict[str, Any]],
    left: int,
) -> dict[str, Any]:
    """The numbers, those of findings first, until the page is full."""
    template = environment.get_template("numbers.html.jinja")

    def render(tables: list[Table], run: Run | None) -> Any:
        nonlocal left
        part = _mark_safe(template.render(tables=tables, run=run))
        size = len(part.encode("utf-8", errors="backslashreplace"))
        if size > left:
            return None
        left -= size
        return part

    finding_parts = {
        item["id"]: render(_list_finding_tables(item["sighting"]), None)
        for item in findings
    }
    numbered = list(enumerate(verdict.runs, 1))
    numbered.sort(key=lambda item: item[1].status is Status.PASS)
    run_parts = {
        number: render(make_run_tables(run.details) if run.details else [], run)
        for number, run in numbered
    }
    return {"finding_parts": finding_parts, "run_parts": run_parts}


def _list_finding_tables(sighting: Sighting) -> list[Table]:
    details = sighting.runs[0].details
    return make_finding_tables(details, sighting.finding) if details else []


def _count(verdict: Verdict) -> dict[str, int]:
    counts = {str(status): 0 for status in Status}
    for run in verdict.runs:
        counts[str(run.status)] += 1
    return {status: number for status, number in counts.items() if number}


@cache
def _read_library() -> tuple[str, ...]:
    """What draws plots; nothing where the extra `report` is not installed."""
    spec = find_spec("bokeh")
    if spec is None or spec.origin is None:
        return ()
    # Bokeh would read the same files, after the second that importing all of it takes.
    folder = Path(spec.origin).parent / "server" / "static" / "js"
    files = [folder / name for name in _LIBRARY]
    if not all(file.is_file() for file in files):
        return ()
    return tuple(file.read_text("utf-8") for file in files)


def _read_own(name: str) -> str:
    return (_WEB / name).read_text("utf-8")


def _mark_safe(text: str) -> Any:
    from markupsafe import Markup

    return Markup(text)


def _make_policy(scripts: list[str]) -> str:
    """What the page may do: run these very scripts, and load nothing."""
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    allowed = (f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {' '.join(allowed)}; "
        "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
        "form-action 'none'"
    )
