"""The HTML report: whole, readable without scripts, and safe whatever the names."""

from __future__ import annotations

import base64
import hashlib
import re
import time
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

import pytest
from page_samples import (
    CONTROLS,
    MARKUP,
    MATHS,
    QUOTES,
    TEMPLATE,
    TURNED,
    make_checked_verdict,
    make_long_verdict,
    make_odd_verdict,
)
from verdict_samples import make_finding, make_run, make_verdict

from distbench.codes import CODES
from distbench.details import Details
from distbench.options import CheckOptions
from distbench.report import page as page_module
from distbench.report.matrix import make_matrix
from distbench.report.page import MOST_BYTES, verdict_to_html
from distbench.report.tables import make_finding_tables, make_run_tables
from distbench.verdict import Status

_EMPTY = {"meta", "input", "br", "img", "link", "base"}


class Page(HTMLParser):
    """Elements of a page: tag, attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str], list[str]]] = []
        self._open: list[list[str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        texts: list[str] = []
        self.elements.append((tag, {k: v or "" for k, v in attrs}, texts))
        if tag not in _EMPTY:
            self._open.append(texts)

    def handle_endtag(self, tag: str) -> None:
        self._open.pop()

    def handle_data(self, data: str) -> None:
        for texts in self._open:
            texts.append(data)

    def find(self, tag: str, **attributes: str) -> list[tuple[dict[str, str], str]]:
        return [
            (found, "".join(texts))
            for name, found, texts in self.elements
            if name == tag
            and all(found.get(k.strip("_")) == v for k, v in attributes.items())
        ]


def render(verdict) -> str:
    return verdict_to_html(verdict, CheckOptions())


@cache
def render_checked() -> str:
    return render(make_checked_verdict())


@cache
def render_odd() -> str:
    return render(make_odd_verdict())


def test_the_page_says_what_the_verdict_says():
    page = Page(render_checked())
    findings = page.find("article", class_="finding")
    assert len(findings) == 1
    attributes, text = findings[0]
    assert attributes["id"] == "finding-mean-instead-of-sum"
    (sighting,) = make_checked_verdict().runs[0].findings
    remedy = CODES["mean-instead-of-sum"].fix
    happened = sighting.explanation.removesuffix(remedy).rstrip()
    assert happened in text
    assert text.count(remedy) == 1
    assert "distbench check my.py:adam -c mwms:2 --path none" in text
    matrix, *_ = page.find("table", class_="matrix")
    words = matrix[1].split()
    assert [w for w in words if w in ("fail", "pass", "skipped")] == [
        "fail",
        "fail",
        "pass",
        "skipped",
    ]
    runs = page.find("details", class_="run")
    assert len(runs) == 4
    assert "epoch 1\nloss 0.5" in runs[0][1]
    assert "need 4 GPUs, have 0" in runs[3][1]
    environment = page.find("table")[-1][1]
    assert "tensorflow" in environment
    assert "2.21.0" in environment


def test_a_link_leads_to_something_and_ids_are_unique():
    page = Page(render_checked())
    ids = [found["id"] for _, found, _ in page.elements if "id" in found]
    assert len(ids) == len(set(ids))
    links = {found["href"] for found, _ in page.find("a")}
    assert {link.removeprefix("#") for link in links} <= set(ids)


def test_two_findings_of_a_code_have_two_addresses():
    findings = (make_finding(), make_finding(variable="other"))
    page = Page(render(make_verdict(make_run(Status.FAIL, findings=findings))))
    assert [found["id"] for found, _ in page.find("article")] == [
        "finding-missing-reduction",
        "finding-missing-reduction-2",
    ]


def test_tables_have_headings_and_captions():
    page = Page(render_checked())
    tables = len(page.find("table"))
    assert tables > 10
    assert len(page.find("caption")) == tables
    assert all(found["scope"] in ("row", "col") for found, _ in page.find("th"))
    plots = [found for found, _ in page.find("figure") if "data-plot" in found]
    assert {found["data-plot"] for found in plots} == {"map", "lines", "norms", "bars"}
    assert len(page.find("figcaption")) == len(page.find("figure"))


def test_a_variable_of_replicas_beyond_the_table_has_an_empty_row():
    verdict = make_checked_verdict()
    run = verdict.runs[0]
    assert run.details is not None
    finding = run.findings[0]
    known = next(
        c for c in run.details.compared if c.variable == finding.variable and c.wrong
    )
    known = replace(known, step=finding.step, phase=finding.phase)
    many = [replace(known, replica=replica) for replica in range(70)]
    last = replace(known, variable="last", replica=69)
    details = Details(compared=(*many, last))
    by_variable, *_ = make_finding_tables(details, finding)
    assert [name for name, _ in by_variable.rows] == [finding.variable, "last"]


def test_the_name_of_a_test_stays_whole_in_the_matrix():
    run = make_run(scenario="test_x[a-b]", cluster="", tier="")
    ((name, *_),) = make_matrix(make_verdict(run)).rows
    assert name == "test_x[a-b]"


def test_the_numbers_of_a_finding_are_in_its_tables():
    run = make_checked_verdict().runs[0]
    assert run.details is not None
    finding = run.findings[0]
    by_variable, by_phase, wrong, ratios, loss = make_finding_tables(
        run.details, finding
    )
    here = [
        c.error_over_bound
        for c in run.details.compared
        if (c.step, c.phase, c.variable, c.replica)
        == (finding.step, finding.phase, finding.variable, 0)
    ]
    row = dict(by_variable.rows)[finding.variable]
    assert row[0].text == f"{max(here):.3g}"
    assert row[0].is_first
    assert sum(cell.is_first for _, cells in by_variable.rows for cell in cells) == 1

    assert by_phase.columns[by_phase.columns.index("loss") + 1] == "local_gradient"
    first = dict(by_phase.rows)["step 0"][by_phase.columns.index(finding.phase)]
    assert first.is_first
    assert first.level >= 2
    right = dict(by_phase.rows)["step 0"][by_phase.columns.index("loss")]
    assert 0 <= right.level < 2

    assert len(wrong.rows) + wrong.left_out == sum(
        c.wrong for c in run.details.compared
    )
    counted = {label: [int(c.text) for c in cells] for label, cells in ratios.rows}
    assert counted["0.5"][1] > 0  # the mean over two replicas
    assert counted["1"][0] > 0
    assert loss.columns[:2] == ("replica 0", "replica 1")
    lines = {
        (s.observed, s.replica): s for s in run.details.series if s.phase == "loss"
    }
    assert dict(loss.rows)["1"][1].text == f"{lines[True, 1].values[1]:.7g}"


def test_replicas_that_agree_share_a_line():
    run = make_checked_verdict().runs[2]
    assert run.details is not None
    norms = make_run_tables(run.details)[-1]
    who = [cells[0].text for name, cells in norms.rows if name == "dense/kernel"]
    assert who == ["replicas 0 and 1", "one device"]
    assert norms.columns == ("on", "start", "0", "1")


@pytest.mark.parametrize(
    "name",
    [MARKUP, TEMPLATE, QUOTES, MATHS],
    ids=["markup", "template", "quotes", "mathematics"],
)
def test_names_are_shown_as_they_are(name):
    page = Page(render_odd())
    for tag in ("h1", "title", "article", "pre", "td"):
        assert any(name in text for _, text in page.find(tag)), tag
    assert any(name in found.get("data-cluster", "") for found, _ in page.find("tr"))


def test_names_bring_no_elements_and_no_handlers():
    odd, usual = Page(render_odd()), Page(render_checked())
    known = {tag for tag, _, _ in usual.elements}
    assert {tag for tag, _, _ in odd.elements} <= known
    assert len(odd.find("script")) == len(usual.find("script")) == 4
    names = {name for _, found, _ in odd.elements for name in found}
    assert not [name for name in names if name.startswith("on")]
    assert {"src", "srcdoc", "style"}.isdisjoint(names)


def test_what_steers_a_terminal_or_turns_text_is_spelt_out():
    page = render_odd()
    assert not {"\x1b", "\x00", "\x07", "\ud800", "\u202e", "\u2066"} & set(page)
    assert "a\\x1b[31m\\x00\\x07b\\ud800" in page
    assert "abc\\u202edef\\u2066 שלום" in page
    assert CONTROLS not in page
    assert TURNED not in page


def test_numbers_that_are_none_are_told():
    text = "".join(text for _, text in Page(render_odd()).find("article"))
    assert "inf; a correct run may have -inf" in text
    assert "expected nan, observed inf" in text


@pytest.mark.parametrize("render", [render_checked, render_odd])
def test_the_page_needs_no_network_and_runs_its_own_scripts_alone(render):
    page = Page(render())
    for _, found, _ in page.elements:
        assert found.get("href", "#").startswith("#")
        assert not {"src", "action", "srcset", "poster"} & set(found)
    (policy,) = [
        found["content"]
        for found, _ in page.find("meta")
        if found.get("http-equiv") == "Content-Security-Policy"
    ]
    digests = {
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for _, text in page.find("script")
    }
    assert len(digests) == 4
    assert set(re.findall(r"'sha256-([^']+)'", policy)) == digests
    assert "default-src 'none'" in policy
    style = page.find("style")[0][1]
    assert "url(" not in style
    assert "@import" not in style


@pytest.mark.sweep
def test_a_long_report_is_made_in_time_and_stays_below_its_size():
    verdict = make_long_verdict(200)
    start_s = time.process_time()
    page = render(verdict)
    assert time.process_time() - start_s < 30
    assert MOST_BYTES / 2 < len(page.encode()) < MOST_BYTES == 6_000_000
    head, *runs = page.split('<details class="run"')
    assert len(runs) == 200
    for run, text in zip(verdict.runs, runs, strict=True):
        # What passed makes room for what failed.
        if run.status is Status.FAIL:
            assert "a line of a log" in text
    assert "left out" in runs[-1]
    _, *findings = head.split('<article class="finding"')
    assert len(findings) == 10
    assert all("error ÷ bound of" in text for text in findings)


def test_a_verdict_without_details_or_runs_is_a_page():
    page = render(make_verdict(make_run(Status.FAIL, findings=(make_finding(),))))
    assert "nobody sums" in page
    assert "<figure" not in page
    assert "No run has a finding." in render(make_verdict())
    assert "No task printed anything." in render(
        make_verdict(make_run(details=Details()))
    )


def test_what_became_of_runs_without_a_finding_is_told_once_above_them():
    died = "Task worker-1 was killed.\nGive it more memory."
    about = {"message": died, "setup": {"resized": {}, "steps": 3}}
    runs = [make_run(Status.ERROR, **about) for _ in range(7)]
    machine = {"machine": {"gpus": [], "cores": 2}}
    page = Page(render(make_verdict(*runs, environment=machine)))
    ((attributes, text),) = page.find("p", class_="remark")
    assert attributes["data-runs"].split() == list("1234567")
    assert "and 2 more: Task worker-1 was killed.\nGive it more memory." in text
    assert "resized" not in page.find("details", class_="run")[0][1]
    environment = page.find("table")[-1][1]
    assert "machine.gpus-\n" in environment
    assert "machine.cores2\n" in environment


def test_the_test_that_shows_a_finding_is_its_command():
    run = replace(
        make_checked_verdict().runs[0],
        setup={"target": "adam", "test": "tests/test_a.py::test_it[x y]"},
    )
    assert "pytest &#39;tests/test_a.py::test_it[x y]&#39;" in render(make_verdict(run))


def test_without_bokeh_the_page_is_its_tables(monkeypatch: pytest.MonkeyPatch):
    verdict = make_checked_verdict()
    whole = render(verdict)
    monkeypatch.setattr(page_module, "find_spec", lambda _: None)
    read_library = page_module._read_library
    read_library.cache_clear()
    try:
        bare = render(verdict)
    finally:
        read_library.cache_clear()
    assert "plots need Bokeh (pip install" in bare
    assert "plots need Bokeh" not in whole
    assert "Bokeh." not in bare
    assert bare.count("<table") == whole.count("<table")
    assert len(bare) < 500_000


def read_colours(style: str) -> tuple[dict[str, str], dict[str, str]]:
    """The colours by name, where light is preferred and where dark is."""
    light, dark = style.split("prefers-color-scheme: dark", 1)
    found = [dict(re.findall(r"--([\w-]+): (#\w{6});", part)) for part in (light, dark)]
    return found[0], found[1]


def measure_light(colour: str) -> float:
    """Relative luminance, as WCAG 2.2 defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (
        p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts
    )
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(scheme: int):
    """WCAG asks for a contrast of 4.5 for text."""
    colours = read_colours(Page(render_checked()).find("style")[0][1])[scheme]
    pairs = [
        (text, ground)
        for text in ("text", "dim", "link", "good", "bad", "odd")
        for ground in ("page", "panel")
    ]
    pairs += [("q-text", f"q{level}") for level in range(5)] + [("q5-text", "q5")]
    for text, ground in pairs:
        low, high = sorted(measure_light(colours[name]) for name in (text, ground))
        assert (high + 0.05) / (low + 0.05) >= 4.5, (text, ground)


def test_a_loss_is_no_variable_without_a_name() -> None:
    finding = make_finding(variable="", variables=("", "kernel", "bias"))
    run = make_run(Status.FAIL, findings=(finding,))
    page = verdict_to_html(make_verdict(run), CheckOptions())
    assert "<dt>Variables</dt><dd>kernel, bias</dd>" in page
