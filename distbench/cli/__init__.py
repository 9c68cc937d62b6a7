"""The command line. Each command imports what it needs when it runs."""

from __future__ import annotations

import atexit
import contextlib
import functools
import io
import os
import signal
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core
import typer.main

from distbench.cli.bisect import bisect
from distbench.cli.check import check
from distbench.cli.debug import debug
from distbench.cli.history import compare, history
from distbench.cli.outcome import guard, tell_interrupt
from distbench.cli.repro import repro, shrink
from distbench.cli.selftest import selftest
from distbench.cli.tell import doctor, explain, list_all
from distbench.cli.trace import diff, show


class _Commands(typer.core.TyperGroup):
    """Tells what an option was given where typer only says that it is wrong."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse empty values: a path that is empty is the folder where one is."""
        for before, word in pairwise(["", *args]):
            option = word.removesuffix("=") if word else before
            if option != word and option.startswith("-"):
                raise typer.BadParameter(
                    f"{option} has an empty value, as from a variable of the shell "
                    "that is not set. Received: ''. Leave it out, or give it a value."
                )
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            # Typer passes on pydantic's words; releases before 0.29 name the value.
            for wrong in getattr(error.__cause__, "errors", list)():
                error.message += f". Received: {wrong['input']!r}."
            raise


app = typer.Typer(
    cls=_Commands,
    help="A test bench for distributed training in TensorFlow.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Rich would cost half of the time that --help takes.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"distbench {version('distbench')}")
        raise typer.Exit


@app.callback()
def run(
    version: Annotated[
        bool | None,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Show the version.",
        ),
    ] = None,
) -> None:
    """Check that distributed training computes what one device computes.

    Exit codes: 0 pass, 1 fail, 2 bad usage, 3 error of the cluster or machine,
    4 undecidable or vacuous.
    """


app.command("check")(guard(check))
app.command("list")(guard(list_all))
app.command("explain")(guard(explain))
app.command("repro")(guard(repro))
app.command("debug")(guard(debug))
app.command("bisect")(guard(bisect))
app.command("shrink")(guard(shrink))
app.command("selftest")(guard(selftest))
app.command("history")(guard(history))
app.command("compare")(guard(compare))
app.command("doctor")(guard(doctor))

traces = typer.Typer(help="Show or compare recorded runs.", no_args_is_help=True)
traces.command("show")(guard(show))
traces.command("diff")(guard(diff))
app.add_typer(traces, name="trace")


@functools.cache
def make_command() -> Callable[..., Any]:
    """What parses words and runs a command: typer reads every signature to make it."""
    return typer.main.get_command(app)


def main() -> None:
    """Entry point of the `distbench` command."""
    _open_closed_streams()
    own = sys.__stderr__
    if own is not None and sys.stderr is own:  # not that of a caller of this function
        sys.stderr = _Aside(own.buffer, own.encoding, line_buffering=True)
    for stream in (sys.stdout, sys.stderr):
        # Formulas hold letters that the terminal's encoding may lack.
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        make_command()(prog_name="distbench")
    except KeyboardInterrupt:  # a command tells of it itself: none was found yet
        raise SystemExit(tell_interrupt()) from None
    finally:
        # Whoever is impatient presses Ctrl-C again while Python ends, which waits for
        # tasks that are being ended. It would print where it was.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


class _Aside(io.TextIOWrapper):
    """Standard error, of which nobody has to read all.

    It tells how far a check is and what went wrong. Where its reader goes away, or its
    disk is full, the exit code, the table and the reports still tell what came out.
    """

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            return super().write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            super().flush()


def _open_closed_streams() -> None:
    """Have streams where the caller closed them, as one who starts a daemon may.

    Python has None in their place, and whatever is opened next takes their descriptors.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open(mode)  # noqa: SIM115 - never closed
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)
