"""The reports that are one file each, by the name of the option that asks for one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
