"""The report of the terminal as one HTML page that needs nothing else."""

from __future__ import annotations

import io

from rich.console import Console

from distbench.options import CheckOptions
from distbench.report.table import render_verdict
from distbench.verdict import Verdict

_WIDTH = 160


def verdict_to_html(verdict: Verdict, options: CheckOptions) -> str:
    """A page without scripts, fonts or pictures from elsewhere."""
    console = Console(
        record=True, width=_WIDTH, file=io.StringIO(), highlight=False, emoji=False
    )
    console.print(render_verdict(verdict, options))
    return console.export_html(inline_styles=True)
