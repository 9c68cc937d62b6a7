"""From exceptions to one clear message and the contract's exit code."""

from __future__ import annotations

import functools
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, ParamSpec

import typer

from distbench.errors import (
    BadInputError,
    ClusterError,
    describe_end,
    find_advice,
    read_message,
)
from distbench.spelling import spell_options, spelled

EXIT_BAD_USAGE = 2
EXIT_BROKEN = 3
EXIT_UNDECIDED = 4
ENDED_BY_SIGNAL = 128
"""Exit codes above it name the signal that ended a process."""
_EXIT_INTERRUPTED = ENDED_BY_SIGNAL + 2
_EXIT_PIPE_CLOSED = ENDED_BY_SIGNAL + 13
# Windows lacks one of them; it is refused later, in words.
_ENDING = [getattr(signal, n) for n in ("SIGTERM", "SIGHUP") if hasattr(signal, n)]

_name = spell_options(
    {
        "clusters": "--cluster",
        "paths": "--path",
        "tiers": "--tier",
        "workloads": "--workload",
        "faults": "--fault",
        "memory_gib": "--memory-limit",
        "window": "--last",
    }
)

P = ParamSpec("P")


def guard(command: Callable[P, int]) -> Callable[P, None]:
    """Turn what a command returns or raises into an exit code.

    Nothing but the command line does this, and no traceback of ours is shown: the
    one of a bug is written to a file.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        raise typer.Exit(run_command(functools.partial(command, *args, **kwargs)))

    return run


class _EndedError(BaseException):
    """A signal asked this process to end; `args[0]` is its number."""

    def __str__(self) -> str:
        return f"ended by {signal.Signals(self.args[0]).name}"


@contextmanager
def _end_in_order() -> Iterator[None]:
    """Have signals unwind the stack, so that folders and tasks are cleaned up."""

    def end(number: int, *_: object) -> NoReturn:
        raise _EndedError(number)

    # What is ignored stays so: 'nohup' asks for it.
    heard = [n for n in _ENDING if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_command(command: Callable[[], int]) -> int:
    """Run a command; tell what it raises, and return its exit code."""
    try:
        with _end_in_order(), spelled(_name):
            code = command()
        sys.stdout.flush()
    except _EndedError as ending:
        say(str(ending))
        return ENDED_BY_SIGNAL + int(ending.args[0])
    except BadInputError as error:
        say(str(error))
        return EXIT_BAD_USAGE
    except ClusterError as error:
        say(str(error))
        if error.detail:
            say(error.detail, prefix="")
        return EXIT_BROKEN
    except KeyboardInterrupt:
        return tell_interrupt()
    except BrokenPipeError:
        # The reader (`| head`) has gone. Python would complain again on exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _EXIT_PIPE_CLOSED
    except Exception as error:  # noqa: BLE001 - the last resort, see the docstring
        if not (advice := find_advice(error)):
            return _report_bug(error)
        say(f"{read_message(error) or type(error).__name__}. {advice}")
        return EXIT_BROKEN
    return code


def tell_interrupt() -> int:
    """Tell that Ctrl-C ended the program; returns the exit code."""
    say(describe_end(KeyboardInterrupt()))
    return _EXIT_INTERRUPTED


def _report_bug(error: Exception) -> int:
    last = traceback.format_exception_only(error)[-1].strip()
    text = "".join(traceback.format_exception(error))
    try:
        handle, name = tempfile.mkstemp(prefix="distbench-bug-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(f"{sys.argv}\nPython {sys.version}\n\n{text}")
        where = f"the traceback is in {Path(name)}"
    except OSError as failure:
        where = f"the traceback could not be written ({failure})"
    say(f"a bug in distbench: {last}; {where}")
    return EXIT_BROKEN


def say(text: str, *, prefix: str = "distbench: ") -> None:
    """Tell the user something beside a command's output."""
    from distbench.escape import escape_controls

    print(prefix + escape_controls(text, keep="\n\t"), file=sys.stderr, flush=True)
