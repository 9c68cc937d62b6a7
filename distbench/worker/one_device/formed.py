"""Gradients of a cluster in the form in which one device itself has them.

What replicas join holds a row once for each of them, or all rows there are. It may add
up to what one device has, and lead a rule elsewhere that minds how rows come.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from distbench.evidence import Tier
from distbench.trace import SUMMED, WHOLE, Phase, SparseRows, Trace, TraceKey, Value
from distbench.worker.one_device.feeder import Feeder
from distbench.worker.process.failures import SubjectError
from distbench.worker.state.values import are_near, widen

Rows = npt.NDArray[np.int64]


def feed_formed(
    feeder: Feeder,
    tier: Tier,
    reference: Trace,
    observed: Trace,
    fed: Mapping[Phase, Trace],
) -> Trace | None:
    """The update of observed gradients in the reference's form.

    Of the steps and replicas that have some in another form, and fed at the first
    `phase`, as a note has it, where they have. None where all forms are alike.

    Args:
        feeder: Runs the reference's steps.
        tier: Which one.
        reference: What one device recorded in it.
        observed: What the cluster recorded.
        fed: The phases at which its gradients were fed as they came.
    """
    for phase in SUMMED:
        if phase not in fed:
            continue
        formed = _form_all(reference, observed, phase)
        if formed:
            with suppress(SubjectError):
                given = replace(observed, values=formed)
                [trace] = feeder.feed(tier, given, phase)
                return replace(trace, notes={**trace.notes, "phase": phase})
            return None
    return None


def _form_all(reference: Trace, observed: Trace, phase: Phase) -> dict[TraceKey, Value]:
    """All gradients of each step and replica that have one in another form."""
    formed = {
        key: value
        for key, seen in observed.select(phase=phase)
        if (own := reference.get(key.at(WHOLE))) is not None
        and (value := _form(own, seen, _list_handed(observed, key))) is not None
    }
    places = {(key.step, key.replica) for key in formed}
    others = {
        key: value
        for step, replica in places
        for key, value in observed.select(step=step, phase=phase, replica=replica)
    }
    return {**others, **formed}


def _list_handed(observed: Trace, key: TraceKey) -> tuple[Value, ...]:
    """What all replicas' tapes gave of a gradient."""
    return observed.get_replicas(replace(key, phase="local_gradient"))


def _form(own: Value, seen: Value, handed: tuple[Value, ...]) -> Value | None:
    """A gradient with the rows of one device's own, each as often.

    None where it has these, and where it is not known which it has to have: where the
    replicas looked up others, as some that are drawn; or where those of one device
    that are repeated add up to something else, as slices of other examples.
    """
    if not isinstance(own, SparseRows):
        return widen(seen).astype(own.dtype) if isinstance(seen, SparseRows) else None
    if not own.indices.size or not _are_inside(own, seen, *handed):
        return None
    rows = np.sort(own.indices)
    if isinstance(seen, SparseRows) and np.array_equal(rows, np.sort(seen.indices)):
        return None
    if not np.array_equal(np.unique(rows), _find_touched(rows, handed)):
        return None
    wide, due = widen(seen), widen(own)
    if not np.isfinite(wide).all() or not np.isfinite(due).all():
        return None
    counts = own.count_rows()
    is_repeated = np.any(counts > 1)
    if np.any(wide[counts == 0]) or (is_repeated and not are_near(own, seen, None)):
        return None
    # Slices of one device's own, which add up to what was seen.
    most = np.maximum(counts, 1).reshape(-1, *(1 for _ in own.shape[1:]))
    values = own.values.astype(np.float64) + ((wide - due) / most)[own.indices]
    return replace(own, values=values.astype(own.values.dtype))


def _are_inside(*values: Value) -> bool:
    return all(
        bool(np.all((value.indices >= 0) & (value.indices < value.shape[0])))
        for value in values
        if isinstance(value, SparseRows)
    )


def _find_touched(rows: Rows, handed: tuple[Value, ...]) -> Rows:
    """The rows that the replicas looked up; those of one device where none can tell."""
    sparse = [value.indices for value in handed if isinstance(value, SparseRows)]
    known = bool(sparse) and len(sparse) == len(handed)
    return np.unique(np.concatenate(sparse) if known else rows)
