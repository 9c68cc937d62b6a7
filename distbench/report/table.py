"""The report on the terminal: a table of runs, then every finding in plain words."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table
from rich.text import Text

from distbench.escape import escape_controls
from distbench.options import CheckOptions
from distbench.report.words import (
    Remark,
    Sighting,
    collect_findings,
    collect_remarks,
    describe_environment,
    format_command,
    format_number,
    join_words,
    name_origin,
    name_run,
    name_status,
    name_target,
    summarise,
)
from distbench.verdict import Status, Verdict

STYLES: dict[Status, str] = {
    Status.PASS: "green",
    Status.FAIL: "bold red",
    Status.ERROR: "bold magenta",
    Status.UNDECIDABLE: "yellow",
    Status.VACUOUS: "yellow",
    Status.REFUSED: "dim",
    Status.SKIPPED: "dim",
}
_PLAIN_WIDTH = 200


class _PlainConsole(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the command: Rich would exit with 1, which means a failure."""
        raise  # it is called where the error is handled


class _Indented:
    """A text further right: Rich's own would fill each line up to the longest one."""

    def __init__(self, text: Text, columns: int) -> None:
        self._text = text
        self._columns = columns

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[Text]:
        for line in self._text.wrap(console, options.max_width - self._columns):
            yield Text(" " * self._columns).append_text(line)


def make_console(*, stderr: bool = False, width: int | None = None) -> Console:
    """A console that never shortens a name in a file or a pipe.

    Rich honours NO_COLOR, FORCE_COLOR and TERM=dumb by itself.
    """
    console = _PlainConsole(stderr=stderr, highlight=False, width=width)
    if width is None and not console.is_terminal:
        console.width = max(_PLAIN_WIDTH, console.width)
    return console


def render_verdict(verdict: Verdict, options: CheckOptions) -> RenderableType:
    """Everything that the user gets to read of a check."""
    parts: list[RenderableType] = []
    if verdict.runs:
        parts += [_make_title(verdict.target), make_table(verdict)]
    # A traceback is long, and a finding says in one sentence what it is of.
    remarks = collect_remarks(verdict)
    last = [r for r in remarks if r.detail and any(run.findings for run in r.runs)]
    for remark in remarks:
        if remark not in last:
            parts += _render_remark(remark)
    for number, sighting in enumerate(collect_findings(verdict), 1):
        parts += _render_sighting(number, sighting, verdict, options)
    for remark in last:
        parts += _render_remark(remark)
    parts.append(Text())
    if environment := describe_environment(verdict):
        parts.append(Text(environment, style="dim"))
    parts.append(Text(summarise(verdict), style=STYLES[verdict.status]))
    return Group(*parts)


def _make_title(text: str) -> Text:
    """What stands above a table: never wrapped, since a path is there to be copied."""
    return Text(escape_controls(text), style="italic", no_wrap=True, overflow="ignore")


def make_table(verdict: Verdict) -> Table:
    """One row for each run."""
    table = Table(box=None)
    # In a narrow terminal Rich leaves out a column that may wrap for those that may
    # not, which would be the one that names the run.
    for name in ("scenario", "tier", "status"):
        table.add_column(name, overflow="fold")
    for name in ("checked", "error/bound", "seconds"):
        table.add_column(name, justify="right", overflow="fold")
    for run in verdict.runs:
        table.add_row(
            Text(escape_controls(run.scenario)),
            Text(escape_controls(run.tier)),
            Text(name_status(run), style=STYLES[run.status]),
            str(run.checked) if run.checked else "-",
            format_number(run.worst.error_over_bound if run.worst else None),
            f"{run.seconds:.1f}",
        )
    return table


def _render_remark(remark: Remark) -> Iterator[RenderableType]:
    yield Text()
    text = Text(f"{remark.status} ", style=STYLES[remark.status])
    text.append(join_words(name_run(run) for run in remark.runs), style="default")
    if remark.message:
        message = escape_controls(remark.message, keep="\n")
        text.append(f": {message}", style="default")
    yield text
    if remark.detail:
        detail = escape_controls(remark.detail, keep="\n\t")
        yield _Indented(Text(detail, style="dim"), 4)


def _render_sighting(
    number: int, sighting: Sighting, verdict: Verdict, options: CheckOptions
) -> Iterator[RenderableType]:
    finding, first = sighting.finding, sighting.runs[0]
    heading = Text(f"{number}. ")
    if finding.warning:
        heading.append("warning: ", style="yellow")
    heading.append(
        escape_controls(finding.code),
        style="yellow" if finding.warning else "bold red",
    )
    heading.append(f"  {escape_controls(finding.explanation)}")
    command = format_command(name_target(verdict, first), first, options)
    yield Text()
    yield heading
    for line in (
        f"cause      {name_origin(finding)}",
        f"found in   {join_words(name_run(run) for run in sighting.runs)}",
    ):
        yield _Indented(Text(line, style="dim"), 3)
    # Never wrapped, nor cut to a width: commands are there to be copied.
    for line in (
        f"reproduce  {command}",
        escape_controls(f"read more  distbench explain {finding.code}"),
    ):
        yield Text(f"   {line}", style="dim", no_wrap=True, overflow="ignore")
