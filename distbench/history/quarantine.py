"""Known failures that a night shows and does not count: the quarantine list.

A list is an INI file with a section for each entry:

    [ring all-reduce in half precision]
    scenario = linear-*-mwms:8@gpu-*
    code = lower-precision, scale-error
    reason = NCCL 2.19, reported upstream
    until = 2026-03-31
"""

from __future__ import annotations

import configparser
import dataclasses
import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from distbench.codes import CODES
from distbench.errors import BadInputError, make_unknown_name_error, shorten
from distbench.history.pattern import fits
from distbench.input_file import read_input
from distbench.verdict import NOT_EXECUTED, Run, Status, Verdict

_NEEDED = ("scenario", "code", "reason", "until")
_LINE_LENGTH = 80
_KNOWN = (*_NEEDED, "target", "tier")
_WITHOUT_CODE = tuple(
    str(status)
    for status in (Status.FAIL, Status.ERROR, Status.UNDECIDABLE, Status.VACUOUS)
)
"""What stands in place of a code where a run has no finding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One known failure.

    Attributes:
        name: Its heading in the list.
        scenario: Pattern of scenario ids, in which `*` and `?` stand for others.
        codes: Codes of the findings that are known; `fail`, `error`, `undecidable` or
            `vacuous` for runs without findings.
        reason: Why it is known.
        until: The last day on which it counts.
        target: Pattern of targets.
        tier: Pattern of tiers.
    """

    name: str
    scenario: str
    codes: tuple[str, ...]
    reason: str
    until: datetime.date
    target: str = "*"
    tier: str = "*"

    def covers(self, run: Run, target: str) -> bool:
        """Whether the patterns fit a run, however it ended."""
        return (
            fits(self.scenario, run.scenario)
            and fits(self.target, str(run.setup.get("target", target)))
            and fits(self.tier, run.tier)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined:
    """What became of a verdict.

    Attributes:
        verdict: The same verdict, in which known failures do not count.
        remarks: What is to be done about the list: entries that are out of date, that
            fit nothing, or whose scenarios pass again.
    """

    verdict: Verdict
    remarks: tuple[str, ...]


def read_quarantine(path: Path) -> tuple[Entry, ...]:
    """The entries of a list.

    Raises:
        BadInputError: It cannot be read, or an entry is not complete.
    """
    # No interpolation: a `%` in a reason is a percent sign.
    parser = configparser.ConfigParser(
        interpolation=None, delimiters=("=",), default_section="\n"
    )
    expected = "a quarantine list: an INI file with a section for each known failure"
    text = read_input(path, expected)
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise BadInputError(
            f"'{path}' is no quarantine list: {_describe(error, text)}. Expected a "
            "section for each entry, with lines such as 'scenario = linear-*', and "
            f"{_join(_NEEDED)}."
        ) from error
    return tuple(_read_entry(path, name, parser[name]) for name in parser.sections())


def _describe(error: configparser.Error, text: str) -> str:
    """What is wrong with a list, and in which line."""
    why = "is a second one of its name"
    if isinstance(error, configparser.MissingSectionHeaderError):
        why = "stands before the first section"
    elif isinstance(error, configparser.ParsingError):
        why = "has no '='"
    told = [line for line, _ in getattr(error, "errors", ())]
    number = getattr(error, "lineno", None) or min(told, default=None)
    if number is None:
        return " ".join(str(error).split())
    line = shorten(text.split("\n")[number - 1].strip(), _LINE_LENGTH)
    return f"line {number} {why}: {line!r}"


def apply_quarantine(
    verdict: Verdict,
    entries: Sequence[Entry],
    today: datetime.date,
    *,
    is_whole: bool = True,
) -> Quarantined:
    """Let known failures count no more.

    A failure is known if every one of its findings is. What else is wrong in the same
    scenario still fails.

    Args:
        verdict: What came out.
        entries: The list.
        today: Entries that ended before this day count no more.
        is_whole: Whether every scenario was due to run: only then an entry that fits
            none is told.
    """
    valid = [entry for entry in entries if entry.until >= today]
    runs = tuple(_judge(run, verdict.target, valid) for run in verdict.runs)
    judged = dataclasses.replace(verdict, runs=runs)
    remarks = tuple(
        remark
        for entry in entries
        for remark in _check_entry(entry, judged, today, is_whole)
    )
    return Quarantined(verdict=judged, remarks=remarks)


def _judge(run: Run, target: str, entries: Sequence[Entry]) -> Run:
    shown = _list_codes(run)
    for entry in entries:
        if shown and shown <= set(entry.codes) and entry.covers(run, target):
            words = f"quarantined until {entry.until} ({entry.name}): {entry.reason}"
            return dataclasses.replace(
                run,
                quarantined=True,
                message="; ".join(filter(None, (words, run.message))),
            )
    return run


def _list_codes(run: Run) -> set[str]:
    """What a failed run has to be known for; empty if it needs no excuse."""
    if str(run.status) not in _WITHOUT_CODE:
        return set()
    codes = {finding.code for finding in run.findings if not finding.warning}
    return codes or {str(run.status)}


def _check_entry(
    entry: Entry, verdict: Verdict, today: datetime.date, is_whole: bool
) -> Iterator[str]:
    covered = [run for run in verdict.runs if entry.covers(run, verdict.target)]
    ran = [run for run in covered if run.status not in NOT_EXECUTED]
    wrong = {run.scenario for run in ran if run.status is not Status.PASS}
    right = list(dict.fromkeys(r.scenario for r in ran if r.scenario not in wrong))
    if entry.until < today:
        yield (
            f"'{entry.name}' ended on {entry.until} and counts no more: take it out, "
            "or give it another day"
        )
    elif not covered and is_whole:
        yield f"'{entry.name}' fits no scenario ({entry.scenario}): take it out"
    elif right:
        advice = "leave these out" if wrong else "take it out"
        yield f"'{entry.name}': {_join(right)} passes; {advice} if it is mended"


def _read_entry(path: Path, name: str, fields: configparser.SectionProxy) -> Entry:
    where = f"'{path}': entry '{name}'"
    for field in fields:
        if field not in _KNOWN:
            raise make_unknown_name_error(f"{where}: field", field, _KNOWN)
    missing = [field for field in _NEEDED if not fields.get(field, "").strip()]
    if missing:
        raise BadInputError(
            f"{where} lacks {_join(missing)}. Expected {_join(_NEEDED)}."
        )
    codes = tuple(code.strip() for code in fields["code"].split(","))
    for code in codes:
        if code not in CODES and code not in _WITHOUT_CODE:
            raise make_unknown_name_error(
                f"{where}: code", code, (*CODES, *_WITHOUT_CODE)
            )
    try:
        until = datetime.date.fromisoformat(fields["until"])
    except ValueError as error:
        raise BadInputError(
            f"{where}: until must be a day such as 2026-03-31. "
            f"Received: {fields['until']!r}."
        ) from error
    return Entry(
        name=name,
        scenario=fields["scenario"],
        codes=codes,
        reason=" ".join(fields["reason"].split()),
        until=until,
        target=fields.get("target", "*"),
        tier=fields.get("tier", "*"),
    )


def _join(words: Sequence[str]) -> str:
    return ", ".join(words)
