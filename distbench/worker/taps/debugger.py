"""Stops in pdb where a value of a step comes by, in the frame of the user's code."""

from __future__ import annotations

import bdb
import builtins
import contextlib
import pdb
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

import numpy as np
import tensorflow as tf

from distbench.launch.terminal import shorten
from distbench.stop import Stop
from distbench.trace import (
    COMPUTED,
    WHOLE,
    Phase,
    SparseRows,
    Trace,
    TraceKey,
    Value,
    get_numbers,
)
from distbench.trace.numbers import densify
from distbench.worker.process.op_by_op import run_op_by_op
from distbench.worker.process.sources import is_own_file
from distbench.worker.taps.board import TapPoint

NAME = "tap"
"""What the value that stopped the run is called at the prompt, in every frame."""


_SHOWN = 6
"""A value of so many elements is shown with them."""
_NO_LINE = -1
"""Where pdb is to stop after 'c'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tap:
    """What came by.

    Attributes:
        step: Number of the step.
        phase: What of it.
        variable: Path of the variable; empty for a loss.
        replica: Global number of the replica.
        value: What the replica has: an array or a `SparseRows`.
        expected: What one device has; None where it has no such value.
        of_all: What one device has of the whole batch, of which a replica has a share;
            None for what all replicas are to have alike.
        tensor: The value as the subject's code holds it; None for state.
    """

    step: int
    phase: Phase
    variable: str
    replica: int
    value: Value
    expected: Value | None
    of_all: Value | None = None
    tensor: Any = None

    @property
    def ratio(self) -> float:
        """⟨value, expected⟩ ÷ ⟨expected, expected⟩; NaN where nothing was expected."""
        if self.expected is None:
            return float("nan")
        value, expected = densify(self.value), densify(self.expected)
        size = float(np.vdot(expected, expected))
        if value.shape != expected.shape or size == 0:
            return float("nan")
        return float(np.vdot(value, expected)) / size

    def __repr__(self) -> str:
        of = f" of '{self.variable}'" if self.variable else ""
        lines = [f"step {self.step}, {self.phase}{of}, replica {self.replica}"]
        lines.append(f"  value       {_describe(self.value)}")
        if self.expected is None:
            lines.append("  one device  has no such value")
        else:
            whose = ", of the same examples" if self.phase in COMPUTED else ""
            lines.append(f"  one device  {_describe(self.expected)}{whose}")
            lines.append(f"  ratio       {self.ratio:.7g}")
        if self.of_all is not None:
            lines.append(f"  whole batch {_describe(self.of_all)}")
        return "\n".join(lines)


class Debugger:
    """Opens a prompt at each value that is meant.

    Args:
        stop: Where.
        reference: What one device has.
        address: The socket of the terminal.

    Attributes:
        step: The step that runs now.
        stops: How often a prompt was opened.
        seen: The phases and variables of the replica that came by in the step.
    """

    def __init__(self, stop: Stop, reference: Trace, address: str) -> None:
        self._stop = stop
        self._reference = reference
        self._address = address
        self._streams = contextlib.ExitStack()
        self._prompt: _Prompt | None = None
        self.step = 0
        self.stops = 0
        self.seen: list[tuple[Phase, str]] = []
        self._shown: dict[tuple[int, int, Phase, str], Any] = {}

    def __enter__(self) -> Debugger:
        # As Python, so that a frame of the step holds its values.
        self._streams.enter_context(run_op_by_op())
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        self._streams.close()

    def watch(self, point: TapPoint, tensor: Any) -> None:
        """Look at what a tap saw in the step."""
        if not isinstance(tensor, tf.IndexedSlices):
            tensor = tf.convert_to_tensor(tensor)
        here = (point.phase, point.variable, point.replica)
        if self._is_meant(*here):
            # What a function around the step keeps of this one is no frame of the step.
            frame = _find_frame(sys._getframe(1))
            tap = self._make_tap(*here, _read(tensor), tensor, call=point.call)
            if self._is_new(tap, point.call):
                self._open(tap, frame, "'s' steps into your code, 'c' goes on.")

    def look(self, key: TraceKey, value: Value) -> None:
        """Look at state that a step left."""
        if self._is_meant(key.phase, key.variable, key.replica):
            here = (key.phase, key.variable, key.replica)
            tap = self._make_tap(*here, value)
            self._open(
                tap,
                sys._getframe(1),
                "The step is over: none of its code follows, 'c' goes on.",
            )

    def _is_new(self, tap: Tap, call: int) -> bool:
        """Whether it is no value that was shown, on its way past another tap."""
        place = (tap.step, call, tap.phase, tap.variable)
        before = self._shown.get(place)
        self._shown[place] = value = densify(tap.value)
        return before is None or not np.array_equal(before, value, equal_nan=True)

    def _is_meant(self, phase: Phase, variable: str, replica: int) -> bool:
        if (self.step, replica) == (self._stop.step, self._stop.replica):
            self.seen.append((phase, variable))
        return self._stop.fits(self.step, phase, variable, replica)

    def _make_tap(
        self,
        phase: Phase,
        variable: str,
        replica: int,
        value: Value,
        tensor: Any = None,
        call: int = 0,
    ) -> Tap:
        keys = (
            TraceKey(
                step=self.step, call=call, phase=phase, variable=variable, replica=r
            )
            for r in (replica, WHOLE)
        )
        own, whole = map(self._reference.get, keys)
        # With one replica the whole batch is its own.
        is_share = phase in COMPUTED and self._reference.replicas > 1
        return Tap(
            step=self.step,
            phase=phase,
            variable=variable,
            replica=replica,
            value=value,
            expected=whole if own is None and not is_share else own,
            of_all=whole if is_share else None,
            tensor=tensor,
        )

    def _open(self, tap: Tap, frame: FrameType, keys: str) -> None:
        self.stops += 1
        if self._prompt is None:
            self._prompt = _Prompt(self._streams.enter_context(_connect(self._address)))
        # A name of the builtins is found from every frame.
        setattr(builtins, NAME, tap)
        self._prompt.open(frame, f"{tap!r}\nIt is '{NAME}' here. {keys}")


class _Prompt(pdb.Pdb):
    """A prompt that opens at once, in a frame further out than the one that runs."""

    def __init__(self, streams: tuple[TextIO, TextIO]) -> None:
        source, sink = streams
        super().__init__(stdin=source, stdout=sink, nosigint=True, readrc=False)
        self.use_rawinput = False

    def open(self, frame: FrameType, text: str) -> None:
        """Returns when the one at the prompt goes on."""
        sys.settrace(None)
        self.reset()
        self.message(text)
        self.interaction(frame, None)
        if self.quitting:
            raise bdb.BdbQuit
        if self.stoplineno != _NO_LINE or self.breaks:
            self._follow(frame)

    def _follow(self, frame: FrameType) -> None:
        """Have pdb called for the lines of a frame and of those around it."""
        walker: FrameType | None = frame
        while walker is not None:
            walker.f_trace = self.trace_dispatch
            self.botframe = walker
            walker = walker.f_back
        sys.settrace(self.trace_dispatch)

    def stop_here(self, frame: FrameType) -> bool:
        """Stepping leads through the user's own code alone."""
        return is_own_file(frame.f_code.co_filename) and super().stop_here(frame)


@contextlib.contextmanager
def _connect(address: str) -> Iterator[tuple[TextIO, TextIO]]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        with shorten(Path(address)) as path:
            caller.connect(path)
        with caller.makefile("r") as source, caller.makefile("w") as sink:
            yield source, sink


def _find_frame(frame: FrameType) -> FrameType:
    """The innermost frame of the user's own, or else the one that is given."""
    walker: FrameType | None = frame
    while walker is not None:
        if is_own_file(walker.f_code.co_filename):
            return walker
        walker = walker.f_back
    return frame


def _read(tensor: Any) -> Value:
    if not isinstance(tensor, tf.IndexedSlices):
        return np.asarray(tensor.numpy())
    values = np.asarray(tensor.values.numpy())
    shape = tensor.dense_shape
    rows = int(shape[0]) if shape is not None else int(np.max(tensor.indices)) + 1
    return SparseRows(
        indices=np.asarray(tensor.indices.numpy(), np.int64),
        values=values,
        shape=(rows, *values.shape[1:]),
    )


def _describe(value: Value) -> str:
    array = get_numbers(value)
    kind = f" in {len(value.indices)} rows" if isinstance(value, SparseRows) else ""
    norm = float(np.linalg.norm(densify(value)))
    text = f"{array.dtype.name} {tuple(value.shape)}{kind}, norm {norm:.7g}"
    if array.size > _SHOWN:
        return text
    shown = np.array2string(array.ravel(), precision=6, max_line_width=10**6)
    return f"{text}, {shown}"
