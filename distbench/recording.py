"""Records a job of the user's own as a trace, to be compared offline."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distbench.errors import BadInputError
from distbench.machine import find_current_folder
from distbench.typed import as_declared

if TYPE_CHECKING:
    from distbench.worker.recording.recorder import Recorder


def record(
    strategy: Any,
    optimizer: Any,
    *,
    folder: str | Path = "distbench-trace",
    steps: int | None = 10,
    every: int = 1,
    variables: Sequence[Any] = (),
    digests: bool = False,
) -> AbstractContextManager[Recorder]:
    """Write what each step of a training loop computes, as a trace.

    The loop inside of the `with` runs as it is, and to the same bits. A step is a call
    of a `tf.function`, of `strategy.run` or, op by op, of the optimizer, if gradients
    are applied in it; where yours is several of them, or is scheduled by a coordinator,
    put `with recorder.step():` around it. The train function must be traced inside of
    the `with`, since what was traced before shows nothing.

    Of each recorded step the trace holds the loss that was differentiated, every
    replica's own gradients, what became of them on the way to the update, and all
    variables and slots after it. Every process of a cluster records its own replicas;
    `distbench trace show` and `diff` join what lies in one folder.

    Args:
        strategy: What the loop trains under; None where there is none.
        optimizer: One that it uses, of any family, or a list of them.
        folder: Where the trace goes, the same for all processes.
        steps: How many steps to record; None for all. Each takes on disk what the
            gradients and the state take in memory.
        every: Record every so manieth step; steps keep their numbers.
        variables: Those that no gradient trains and that are to be in the trace too,
            such as moving means. `model.variables` will do.
        digests: Keep 64 bits of each value in the place of its numbers, but for losses:
            enough to say where two runs first differ in a bit, or replicas that are to
            hold the same do.

    Returns:
        A context manager that gives the recorder: `recorder.step()` as above, and
        `recorder.loss(value)` for what the loop reports.

    Raises:
        BadInputError: An argument cannot be used; or, in the loop, a step was made that
            could not be observed.
    """
    steps = as_declared("distbench.record: steps", steps, int | None)
    every = as_declared("distbench.record: every", every, int)
    for name, number in (("steps", steps), ("every", every)):
        if number is not None and number < 1:
            raise BadInputError(
                f"distbench.record: {name} must be a number from 1. "
                f"Received: {number!r}."
            )
    place: Path = as_declared("distbench.record: folder", folder, Path)
    if not place.is_absolute():
        place = find_current_folder() / place  # the loop may change it
    digests = as_declared("distbench.record: digests", digests, bool)
    from distbench.worker.recording.recorder import Recorder

    return Recorder(
        strategy,
        optimizer,
        place,
        steps=steps,
        every=every,
        variables=variables,
        digests=digests,
    )
