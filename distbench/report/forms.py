"""The reports that a check may be asked for, by the names of their options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from distbench.options import CheckOptions
from distbench.report.earlier import PAGE, SUITE, VERDICT, Kind
from distbench.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A form in which a verdict is reported.

    Attributes:
        kind: What messages call it, and how an earlier one is known.
        write: Makes the text of a verdict, and of the options that were checked.
        detailed: Whether it shows the numbers of a run besides what was judged.
    """

    kind: Kind
    write: Callable[[Verdict, CheckOptions], str]
    detailed: bool = False


def _write_json(verdict: Verdict, _: CheckOptions) -> str:
    from distbench.verdict.document import verdict_to_json

    return verdict_to_json(verdict) + "\n"


def _write_html(verdict: Verdict, options: CheckOptions) -> str:
    from distbench.report.page import verdict_to_html

    return verdict_to_html(verdict, options)


def _write_junit(verdict: Verdict, _: CheckOptions) -> str:
    from distbench.report.junit import verdict_to_junit

    return verdict_to_junit(verdict)


FORMS: Mapping[str, Form] = MappingProxyType(
    {
        "json": Form(kind=VERDICT, write=_write_json),
        "html": Form(kind=PAGE, write=_write_html, detailed=True),
        "junit": Form(kind=SUITE, write=_write_junit),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """Where reports go, besides the terminal; None is nowhere.

    Attributes:
        json: The verdict.
        html: A page.
        junit: The runs as JUnit XML.
        tensorboard: A folder of summaries.
    """

    json: Path | None = None
    html: Path | None = None
    junit: Path | None = None
    tensorboard: Path | None = None

    @property
    def files(self) -> dict[str, Path]:
        """Those that are one file each, by their names in `FORMS`."""
        given = {name: getattr(self, name) for name in FORMS}
        return {name: file for name, file in given.items() if file}
