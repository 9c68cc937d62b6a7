"""A history on the terminal: what a night changed, what moves, what a scenario did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from distbench.errors import count_things
from distbench.escape import escape_controls
from distbench.history.changes import WORSE, NightDifference
from distbench.history.drift import Drift, Flaky
from distbench.history.night import Key, Night, Row
from distbench.report.table import STYLES
from distbench.report.words import format_number, join_words, name_status
from distbench.verdict import Status

_DAY = "%Y-%m-%d %H:%M"
_COUNTED = ("gone", "new")
"""Changes that come in numbers: a file of scenarios more, an optimizer less."""
_NAMED = 4
_SEVERAL = {"new failure": "new failures", "other cause": "other causes"}
_SAME = 0.02
"""Two ratios that read alike."""


def render_nights(nights: Sequence[Night]) -> Table:
    """One row for each night."""
    table = _make_table("night", "begun (UTC)", "status", "runs", "seconds", "target")
    for night in nights:
        counts = Counter(name_status(row) for row in night.rows)
        table.add_row(
            str(night.id),
            f"{night.started:{_DAY}}",
            Text(str(night.status), style=STYLES[night.status]),
            ", ".join(f"{number} {status}" for status, number in counts.items()),
            f"{sum(row.seconds for row in night.rows):.0f}",
            Text(escape_controls(night.target)),
        )
    return table


def render_scenario(key: Key, nights: Sequence[Night]) -> RenderableType:
    """One row for each night in which a scenario was due."""
    table = _make_table("night", "begun (UTC)", "status", "seconds", "error/bound", "")
    for night in nights:
        for row in night.rows:
            if row.key == key:
                table.add_row(
                    str(night.id),
                    f"{night.started:{_DAY}}",
                    Text(name_status(row), style=STYLES[row.status]),
                    f"{row.seconds:.1f}",
                    format_number(row.error_over_bound),
                    Text(escape_controls(_say_why(row))),
                )
    return Group(_name(key, "bold"), table)


def render_comparison(comparison: NightDifference) -> Iterator[RenderableType]:
    """What changed, what is worse first, and the settings that differ."""
    for change in comparison.changes:
        if change.kind in _COUNTED:
            continue
        line = Text(f"{change.kind}: ", "bold red" if change.kind in WORSE else "green")
        line.append_text(_name(change.key))
        words = f": {change.before} -> {change.now}"
        line.append(escape_controls(words), style="default")
        yield line
    for kind in _COUNTED:
        names = [
            f"{c.key.target} {c.key}" for c in comparison.changes if c.kind == kind
        ]
        if names:
            yield Text(escape_controls(f"{kind}: {join_words(names, _NAMED)}"))
    for name, before, now in comparison.environment:
        yield Text(escape_controls(f"environment: {name}: {before} -> {now}"), "yellow")
    times = "" if comparison.has_times else "; times were not compared: other machines"
    kinds = Counter(change.kind for change in comparison.changes)
    told = ", ".join(
        f"{number} {kind if number == 1 else _SEVERAL.get(kind, kind)}"
        for kind, number in kinds.items()
    )
    yield Text(f"{comparison.common} in both: {told or 'nothing changed'}{times}")


def render_drifts(drifts: Sequence[Drift]) -> Iterator[RenderableType]:
    """A line for each number that moved."""
    for drift in drifts:
        line = Text("drift: ", "bold yellow")
        if drift.key is None:
            line.append("the whole night", "default")
        else:
            line.append_text(_name(drift.key))
        unit = " s" if drift.what == "seconds" else ""
        now, before = (f"{format_number(x)}{unit}" for x in (drift.now, drift.before))
        line.append(
            f": {drift.what} {now}, {drift.ratio:.3g} times what it was ({before}, "
            f"median of {drift.runs})",
            "default",
        )
        if drift.what == "seconds" and not _is_near(
            drift.ratio, drift.now / drift.before
        ):
            line.append(
                ", without what all runs of the night have in common", "default"
            )
        if drift.upgrade:
            line.append(escape_controls(f"; since then {drift.upgrade}"), "default")
        yield line


def render_flaky(flaky: Sequence[Flaky]) -> Iterator[RenderableType]:
    """A line for each scenario that fails now and then."""
    for one in flaky:
        line = Text("flaky: ", "bold yellow")
        line.append_text(_name(one.key))
        share = 100 * one.failed / one.runs
        line.append(f": failed {one.failed} of {one.runs} times ({share:.0f} %)")
        yield line


def render_remarks(remarks: Sequence[str]) -> Iterator[RenderableType]:
    """What is to be done about the quarantine list."""
    for remark in remarks:
        yield Text("quarantine: ", "yellow") + Text(escape_controls(remark))


def render_quarantined(night: Night) -> Iterator[RenderableType]:
    """Known failures: shown each night, counted in none."""
    for row in night.rows:
        if row.quarantined:
            line = Text("known: ", "yellow")
            line.append_text(_name(row.key))
            line.append(escape_controls(f": {row.status}, {_say_why(row)}"), "default")
            yield line


def render_red(night: Night) -> Iterator[RenderableType]:
    """A line for each scenario that is no pass, and that nothing excuses."""
    for row in night.rows:
        if row.is_red:
            line = Text(f"{row.status}: ", STYLES[row.status])
            line.append_text(_name(row.key))
            line.append(escape_controls(f": {_say_why(row)}"), "default")
            yield line


def render_skipped(night: Night) -> Iterator[RenderableType]:
    """A line for each reason for which scenarios did not run: what they need."""
    reasons: dict[tuple[Status, str], list[Row]] = {}
    for row in night.rows:
        if not row.counts:
            why = row.message.partition("\n")[0]
            reasons.setdefault((row.status, why), []).append(row)
    for (status, why), rows in reasons.items():
        line = Text(f"{status}: ", "dim")
        line.append(
            escape_controls(f"{count_things(len(rows), 'run')}: {why}"), "default"
        )
        yield line


def _is_near(a: float, b: float) -> bool:
    return abs(a - b) < _SAME * b


def _name(key: Key, style: str = "default") -> Text:
    return Text(escape_controls(f"{key.target} {key}"), style)


def _say_why(row: Row) -> str:
    if row.status is Status.PASS:
        return ""
    causes = ", ".join(dict.fromkeys(str(cause) for cause in row.causes))
    return "; ".join(filter(None, (causes, row.message.partition("\n")[0])))


def _make_table(*columns: str) -> Table:
    table = Table(box=None)
    for name in columns:
        right = name in ("night", "seconds", "error/bound")
        table.add_column(
            name,
            justify="right" if right else "left",
            no_wrap=name not in ("", "runs", "target"),
            overflow="fold",
        )
    return table
