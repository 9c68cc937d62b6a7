"""The three ways in which a run can end badly, as three exception types.

Bad input is the caller's to mend, a broken cluster is the machine's, and wrong
numbers are the subject's. They are kept apart so that none is blamed for another:
the command line turns each into its own exit code.
"""

from __future__ import annotations

import builtins
import difflib
import errno
from collections.abc import Iterable
from pathlib import Path
from typing import Any

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
"""Numbers of the system's errors for a disk, or a user's part of it, without room."""
_FREE_DISK = (
    "The disk is full: that of the output, or of the system's temporary folder, to "
    "which a run writes its traces and logs. Free some of it, or set TMPDIR to a "
    "folder with more room."
)
_LACKS = {
    **dict.fromkeys(DISK_FULL, _FREE_DISK),
    errno.EFBIG: "Files may not be so large here: raise the limit ('ulimit -f').",
    errno.EMFILE: "Raise the limit of open files ('ulimit -n').",
    errno.ENFILE: "The machine has no more open files: end other programs.",
    errno.ENOMEM: "Free memory, or raise the limit ('ulimit -v').",
}
_NO_THREAD = "can't start new thread"
"""Python's words for it, of a type that says nothing."""
_NO_ROOM_FOR_LIBRARY = "failed to map segment from shared object"
"""The C library's words for it, where an import fails."""
_MORE_THREADS = (
    "End other programs, or raise the limits of processes and memory ('ulimit -u', "
    "'ulimit -v')."
)

NOT_JUDGED = "Not judged: "
"""What the message of a run begins with that a check ended before; why follows."""
_LISTED = 12
"""A longer list of names would bury the message."""
_SHOWN = 4
"""So many of such a list are shown where none is near."""
_NEAR = 0.6
"""Share of letters in common below which nobody can have meant a name."""


class BadInputError(ValueError):
    """The caller asked for something that cannot be run.

    The message is one sentence for the user: what, where, expected, received and
    what to do next. It is shown without a traceback.
    """


class ShortEpochError(BadInputError):
    """An epoch ends on the cluster before the steps that are asked for do.

    Attributes:
        steps: How many it has, at least 1; one device has more.
    """

    def __init__(self, message: str, steps: int) -> None:
        super().__init__(message)
        self.steps = steps


class ClusterError(RuntimeError):
    """A cluster could not be started, died or ran into its deadline.

    Never a statement about the subject. `detail` holds what helps to debug it: the
    log tails and the Python stacks of the tasks.
    """

    def __init__(self, message: str, *, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail


class VerdictFailedError(AssertionError):
    """A check ended with wrong numbers; the message is the diagnosis."""


def read_message(error: BaseException) -> str:
    """An exception's own words, whatever its type makes of them.

    Those of a group are followed by what it holds, which they only count.
    """
    try:
        words = str(error)
    except Exception as failure:  # noqa: BLE001 - the user's __str__
        words = f"(its __str__ raises {type(failure).__name__})"
    held = (f"{type(m).__name__}: {read_message(m)}" for m in list_members(error))
    told = "; ".join(words.removesuffix(": ") for words in held)
    return f"{words}: {told}" if told else words


def list_members(error: BaseException) -> list[BaseException]:
    """The exceptions that a group holds, those of groups in it too; none of others."""
    group: Any = error
    kind: Any = getattr(builtins, "BaseExceptionGroup", ())  # from Python 3.11
    if not isinstance(group, kind):
        return []
    parts = ((member, list_members(member)) for member in group.exceptions)
    return [one for member, held in parts for one in held or [member]]


def describe_end(error: BaseException) -> str:
    """What ended a command before its time, in words for those who read its report."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    message = read_message(error)
    # A bug says nothing without its type.
    is_clear = isinstance(error, ClusterError) or not isinstance(error, Exception)
    return message if is_clear and message else f"{type(error).__name__}: {message}"


def shorten(text: str, length: int) -> str:
    """A text of at most so many characters, and a few: of a longer one both ends."""
    if len(text) <= length:
        return text
    half = length // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]} ... ({left_out} characters left out) ... {text[-half:]}"


def shorten_lines(text: str, lines: int) -> str:
    """A text of at most so many lines, and one: of a longer one both ends."""
    found = text.splitlines(keepends=True)
    if len(found) <= lines:
        return text
    half = lines // 2
    left_out = f"... ({len(found) - 2 * half} lines left out) ...\n"
    return "".join([*found[:half], left_out, *found[-half:]])


def count_things(number: int, what: str) -> str:
    """A number of things as a message has it: `1 step`, `2 steps`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def find_advice(error: BaseException) -> str:
    """What to do about what the machine lacks; `""` where an exception tells of none.

    Args:
        error: Any exception; those of the system have a number.
    """
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, MemoryError):
        number = errno.ENOMEM
    if isinstance(error, RuntimeError) and read_message(error) == _NO_THREAD:
        return _MORE_THREADS
    if isinstance(error, ImportError) and _NO_ROOM_FOR_LIBRARY in read_message(error):
        number = errno.ENOMEM
    return _LACKS.get(number or 0, "")


def describe_unwritable(error: Exception, path: Path) -> str:
    """Why nothing can be written at a path, in the system's words where these tell it.

    A folder of the kernel's takes nothing from anybody, and the system then says that
    there is no such file.
    """
    if isinstance(error, FileNotFoundError):
        there = next((p for p in path.absolute().parents if p.exists()), None)
        return f"the folder '{there}' takes no new files or folders"
    return (getattr(error, "strerror", None) or str(error)).lower()


def find_near(received: str, known: Iterable[str], count: int = 1) -> list[str]:
    """The names that somebody may have meant, the nearest first; none that are far off.

    Where none is near, those that begin so.

    Args:
        received: What was written.
        known: All names that would have been right.
        count: How many at most.
    """
    names = {name.lower(): name for name in known}
    given = received.lower()
    near = difflib.get_close_matches(given, names, n=count, cutoff=_NEAR)
    longer = [name for name in names if len(given) > 1 and name.startswith(given)]
    return [names[name] for name in near or longer[:count]]


def suggest(meant: Iterable[str]) -> str:
    """What to add to a message: whether somebody meant the first of these, if any."""
    return next((f" Did you mean '{name}'?" for name in meant), "")


def make_unknown_name_error(
    what: str, received: str, known: Iterable[str], *, section: str = ""
) -> BadInputError:
    """The error for a name that is not in a list: it gives near ones, if there are any.

    Args:
        what: What the name stands for, as the first words of the message.
        received: The name as it came in.
        known: All names that would have been right.
        section: What 'distbench list' calls them; empty if it does not show them.
    """
    names = list(known)
    nearest = find_near(received, names, 3)
    if len(names) > _LISTED:
        # Where no list shows the others, some of them tell what such a name is like.
        shown = nearest or ([] if section else names[:_SHOWN])
        others = f"{len(names) - len(shown)} {'others' if shown else 'names'}"
        where = f" (see 'distbench list {section}')" if section else ""
        names = [*shown, f"{others}{where}"]
    return BadInputError(
        f"{what} {received!r} is not known. Expected one of {', '.join(names)}."
        f"{suggest(nearest)}"
    )
