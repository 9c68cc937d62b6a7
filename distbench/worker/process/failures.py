"""Says whose failure an exception is, and shows it as the user would see it."""

from __future__ import annotations

import contextlib
import os
import re
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.util.traceback_utils import include_frame

import distbench
from distbench.errors import (
    BadInputError,
    ShortEpochError,
    find_advice,
    list_members,
    read_message,
)
from distbench.pickling import PACKAGES
from distbench.worker.process.collectives import find_wait
from distbench.worker.process.lifting import list_making_frames
from distbench.worker.process.sources import is_foreign, is_own_file

_LOST_PORT = re.compile(r"Could not start gRPC server|Address already in use")
_OWN = os.path.join(Path(distbench.__file__).parent, "")  # noqa: PTH118  # as above
_SUBJECTS = ("samples/", "faults/", "unusual/")
_OP_FRAME = re.compile(
    r'File "(?P<file>[^"]+)", line (?P<number>\d+), in (?P<name>\S+)'
)

_CODE = re.compile(
    r'^[ \t]*File ".*$(?:\n {4,}\S.*$(?:\n[ ~^]+$)?)?', flags=re.MULTILINE
)
"""A frame in a message: its line of source follows, and what underlines that."""
_REMOTE = re.compile(
    r"remote target /job:(?P<role>\w+)/replica:\d+/task:(?P<index>\d+)"
)
_GRAPH_ERROR = re.compile(
    r"^Graph execution error:\s*"
    r"(?:Detected at node \S+ defined at \(most recent call last\):\s*)*"
)
_ROOTS = re.compile(
    r"^\d+ root error\(s\) found\.\s*\(0\)\s*[A-Z_]+:\s*(?P<first>.*?)"
    r"\s*\(1\)\s*[A-Z_]+:.*",
    flags=re.DOTALL,
)
"""Several errors of one run, which most often are one that is told anew."""
_NO_MEMORY = re.compile(r"(?:^|\}\} )MemoryError:", flags=re.MULTILINE)
"""What Python code of a graph raised: TensorFlow makes an error of its own of it."""
_MESSAGE_LENGTH = 600
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class SubjectError(Exception):
    """The user's code raised; `__cause__` is what it raised.

    Attributes:
        place: The last phase that the replica had reached, or what the bench was
            doing outside of any: `build`, `data`, ...
        replica: Global number of the replica whose code raised, if it is known.
        left_by: The exception that left that replica's code, which may be another one:
            what is raised where replicas meet stops each of them by one of its own.
        watched: Whether the bench's own code ran amid the user's, so that it may be
            the bench that raised.
    """

    def __init__(
        self,
        place: str,
        replica: int | None,
        left_by: BaseException | None = None,
        *,
        watched: bool = False,
    ) -> None:
        super().__init__(place)
        self.place = place
        self.replica = replica
        self.left_by = left_by
        self.watched = watched


class UnfitError(ValueError):
    """The bench cannot go on with what the subject's step made: the subject's doing."""


@contextlib.contextmanager
def blame_subject(place: str) -> Iterator[None]:
    """Mark what the user's code raises as the subject's doing, where nothing trains."""
    try:
        yield
    except (BadInputError, SubjectError):
        raise
    except BaseException as error:  # the user's code may leave by sys.exit
        raise SubjectError(place, None) from error


def classify_failure(error: BaseException) -> Mapping[str, Any]:
    """Whose failure an exception is: the input's, the subject's or the bench's."""
    if (bad_input := find_cause(error, BadInputError)) is not None:
        known: dict[str, Any] = {"kind": "input", "message": str(bad_input)}
        if isinstance(bad_input, ShortEpochError):
            known["step"] = bad_input.steps  # the first that has no batch
        return known
    if has_lost_port(error):
        return {"kind": "port"}
    if isinstance(error, SubjectError) and error.__cause__ is not None:
        cause = _find_original(error.__cause__)
        frames = _list_frames(error.__cause__, error.left_by)
        # The first one of a group tells more than where the group was made.
        members = list_members(cause)
        first = members[0] if members else cause
        its_frames = _map_frames(first) if members else frames
        told = {
            "kind": "subject",
            "exception": type(cause).__name__,
            "message": _clean_message(cause),
            "phase": error.place,
            "replica": error.replica,
            "frame": _describe_own_frame(first, its_frames)
            or _describe_own_frame(cause, frames),
            "traceback": _format_traceback(cause, frames),
        }
        if (waited := find_wait(first)) is not None:
            place = f", called at {told['frame']}" if told["frame"] else ""
            words = f"{waited['words']}{place}"
            return {
                **told,
                "kind": "collective",
                "message": words,
                "collective": {**waited, "words": words},
            }
        if _has_lost_peer(first):
            return {**told, "kind": "peer", "peer": _find_peer(first)}
        if advice := _find_advice(first):
            # What the machine lacks is no fault of the code that asks for it.
            return {**told, "kind": "bench", "message": f"{told['message']}. {advice}"}
        if error.watched and (place := _find_own_place(cause)):
            return {
                **told,
                "kind": "observer",
                "message": f"{told['message']}. It was raised at {place}, which is the "
                "bench's own code as it watched the subject: a bug of distbench. "
                "Please report it with its traceback",
                "traceback": "".join(traceback.format_exception(cause)),
            }
        return told
    return {"kind": "bench"}


def _find_own_place(error: BaseException) -> str:
    """The line of the bench's code that raised an exception; `""` for others' code.

    What users give the bench's code may make it raise as well: only a run without it
    tells.
    """
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, UnfitError) or not isinstance(error, Exception):
        return ""
    if not frames or not frames[-1].filename.startswith(_OWN):
        return ""
    name = frames[-1].filename.removeprefix(_OWN)
    # What is trained is a subject, also where it comes with the bench.
    return "" if name.startswith(_SUBJECTS) else f"distbench/{name}:{frames[-1].lineno}"


def has_lost_port(error: BaseException) -> bool:
    """Whether an exception says that a server could not bind its port."""
    return _LOST_PORT.search(read_message(error)) is not None


def _has_lost_peer(error: BaseException) -> bool:
    """Whether an exception says nothing but that another task cannot be reached.

    Whoever is gone, it is no fault of the code that waited for it. What the user's
    own code says of anything, and not TensorFlow, is no such thing, unless it passes
    on what TensorFlow said.
    """
    if not isinstance(error, tf.errors.UnavailableError):
        return False
    said = (e for e in _walk_causes(error) if isinstance(e, tf.errors.UnavailableError))
    return not all(map(_is_raised_by_user, said))


def _is_raised_by_user(error: BaseException) -> bool:
    frames = _list_raised_frames(error)
    return bool(frames) and is_own_file(frames[-1].filename)


def _find_advice(error: BaseException) -> str:
    """What to do about what the machine lacks, also where Python said so in a graph."""
    in_graph = isinstance(error, tf.errors.ResourceExhaustedError)
    if in_graph and _NO_MEMORY.search(read_message(error)):
        error = MemoryError()
    return find_advice(error)


def _find_peer(error: BaseException) -> str | None:
    """The task that an exception names as the one that was called, as `worker-1`."""
    found = _REMOTE.search(read_message(error))
    return f"{found['role']}-{found['index']}" if found else None


def find_cause(error: BaseException, kind: type[BaseException]) -> Any:
    """The first exception of a kind along the chain of causes, or None."""
    return next((e for e in _walk_causes(error) if isinstance(e, kind)), None)


def _walk_causes(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and its causes, the last one's first."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        yield error
        seen.add(id(error))
        error = error.__cause__ or error.__context__


def _find_original(error: BaseException) -> BaseException:
    """The exception that the user's code raised, before AutoGraph rewrote it.

    AutoGraph raises anew with the user's source lines in the message; a type that it
    cannot make (KeyError, say) becomes a StagingError.
    """
    while (
        read_message(error).startswith("in user code:")
        and error.__context__ is not None
    ):
        error = error.__context__
    return error


def _format_traceback(
    original: BaseException, frames: list[traceback.FrameSummary]
) -> str:
    """A traceback of the user's own frames, and the innermost one whoever's it is."""
    kept = [f for f in frames[:-1] if not is_foreign(f.filename)] + frames[-1:]
    lines = ["Traceback (most recent call last, the framework's frames left out):\n"]
    lines += traceback.format_list(kept)
    said = "".join(traceback.format_exception_only(original))
    held = [_format_traceback(m, _map_frames(m)) for m in list_members(original)]
    return "".join([*lines, _COLOURS.sub("", said), *held])


def _describe_own_frame(
    original: BaseException, frames: list[traceback.FrameSummary]
) -> str:
    """The innermost line of the user's own files: `file:line: source`, `""` if none.

    What fails when the graph runs has it in its message alone: there TensorFlow lists
    where the op was made. What cannot be lifted out of a graph has it in no message.
    Code that is installed counts if there is no other.
    """
    made = list_making_frames(original)
    known = [*_list_op_frames(read_message(original)), *frames, *made]
    mine = [f for f in known if not is_foreign(f.filename)]
    own = [f for f in mine if is_own_file(f.filename)]
    own = own or [f for f in mine if f.filename.startswith(PACKAGES)]
    if not own:
        return ""
    file = Path(own[-1].filename)
    with contextlib.suppress(ValueError, FileNotFoundError):  # it may be gone by now
        file = file.relative_to(Path.cwd())
    text = f"{file}:{own[-1].lineno}"
    return f"{text}: {own[-1].line}" if own[-1].line else text


def _list_frames(
    error: BaseException, left_by: BaseException | None
) -> list[traceback.FrameSummary]:
    """The frames of what was raised, below those of the replica that it stopped.

    Args:
        error: What was raised.
        left_by: What left the replica's code; None if that is not known.
    """
    frames = _map_frames(error)
    if left_by is None or _find_original(left_by) is _find_original(error):
        return frames
    if any(is_own_file(frame.filename) for frame in frames):
        return frames
    return [*_map_frames(left_by), *frames]


def _map_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames of what the user's code raised, as AutoGraph maps them if it did.

    What a layer raised Keras raises anew, whose frames end where the layer is called.
    """
    original = _find_original(error)
    mapped = _list_mapped_frames(error) if error is not original else []
    frames = mapped or _list_raised_frames(original)
    is_anew = hasattr(original, "_keras_call_info_injected")
    inner = original.__context__ if is_anew else None
    return frames if inner is None else [*frames, *_map_frames(inner)]


def _list_raised_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames of a traceback, those of converted code in the user's own source.

    AutoGraph lists them in the message of an Exception alone: SystemExit is none, and
    what it left by was known only as a line of a generated file.
    """
    origins: dict[tuple[str, int | None], Any] = {}
    for frame, _ in traceback.walk_tb(error.__traceback__):
        # AutoGraph's caller of what it converted: the map is nowhere else.
        converted = frame.f_locals.get("converted_f")
        origins.update(getattr(converted, "ag_source_map", {}))
    return [
        _name_origin(origin) if (origin := origins.get((f.filename, f.lineno))) else f
        for f in traceback.extract_tb(error.__traceback__)
    ]


def _name_origin(origin: Any) -> traceback.FrameSummary:
    """The frame of a line that AutoGraph converted, from its entry in a source map."""
    place, line = origin.loc, origin.source_code_line.strip()
    return traceback.FrameSummary(
        place.filename, place.lineno, origin.function_name, line=line
    )


def _name_place(error: BaseException) -> str:
    """The function that raised an exception, and its file from the package on."""
    frames = _list_raised_frames(error)
    if not frames:
        return "without a message"
    file = frames[-1].filename
    for folder in PACKAGES:
        file = file.removeprefix(f"{folder}/")
    return f"without a message, by {frames[-1].name} ({file}:{frames[-1].lineno})"


def _list_op_frames(message: str) -> list[traceback.FrameSummary]:
    """The frames in which an op was made, which a message has without their source."""
    return [
        traceback.FrameSummary(found["file"], int(found["number"]), found["name"])
        for found in _OP_FRAME.finditer(message)
    ]


def _list_mapped_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames that AutoGraph keeps of what it raises anew: of the user's source."""
    known = getattr(error, "ag_error_metadata", None)
    return [
        traceback.FrameSummary(f.filename, f.lineno, f.function_name, line=f.code)
        for f in reversed(getattr(known, "translated_stack", ()))
        if include_frame(f.filename)
    ]


def _clean_message(error: BaseException) -> str:
    """An exception's own words in one line, without the code put before them.

    AutoGraph lists source lines before the message, and TensorFlow's runtime the
    Python frames of every op that it names; of several errors of one run the first is
    told. Of one without words, as of a method that a subclass has to define, the
    function that raised it says most.
    """
    # Keras 3 colours its own words.
    text = _COLOURS.sub("", read_message(error)).strip()
    if text.startswith("in user code:"):
        paragraphs = [part for part in re.split(r"\n\s*\n", text) if part.strip()]
        text = re.sub(rf"^\s*{type(error).__name__}: ", "", paragraphs[-1])
    text = _ROOTS.sub(r"\g<first>", _GRAPH_ERROR.sub("", _CODE.sub("", text)))
    words = " ".join(text.split()) or _name_place(error)
    return words if len(words) <= _MESSAGE_LENGTH else f"{words[:_MESSAGE_LENGTH]}..."
