"""From which place of a buffer a piece was cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from distbench.trace.numbers import Array

_PROBED = 16
"""Numbers of a piece that tell its place: its largest ones."""
_TRIED = 3
"""How many of them are looked for; any may be one that no place explains."""


def find_start(buffer: Array, piece: Array, allowed: Array | float) -> int | None:
    """Place at which the piece begins that has most of the largest numbers of another.

    Args:
        buffer: [T]; after its end it goes on from its start.
        piece: [n], 0 < n <= T.
        allowed: How far two numbers may differ to count as the same; a number or [n].

    Returns:
        None if it has none of them.
    """
    count = min(_PROBED, len(piece))
    probes = np.argpartition(-np.abs(piece), count - 1)[:count]
    probes = probes[np.argsort(-np.abs(piece[probes]), kind="stable")]
    limits = np.broadcast_to(allowed, piece.shape)[probes]
    best, most = None, 0
    for probe, limit in list(zip(probes, limits, strict=True))[:_TRIED]:
        places = np.flatnonzero(np.abs(buffer - piece[probe]) <= limit)
        starts = np.unique((places - probe) % len(buffer))
        found = buffer[(starts[:, None] + probes) % len(buffer)]
        alike = np.count_nonzero(np.abs(found - piece[probes]) <= limits, axis=1)
        if starts.size and alike.max() > most:
            best, most = int(starts[np.argmax(alike)]), int(alike.max())
    return best


def find_place(pieces: Mapping[str, Array], order: Sequence[str], name: str) -> int:
    """Where a piece begins in a buffer that is filled in an order of names."""
    return sum(pieces[other].size for other in order[: order.index(name)])


def cut_piece(buffer: Array, start: int, size: int) -> Array:
    """So many numbers from a place on; a buffer goes on from its start."""
    return np.asarray(np.take(buffer, np.arange(start, start + size), mode="wrap"))


def measure_move(buffer: Array, start: int, own: int) -> int:
    """How far a piece lies from its own place, the shorter way round the buffer."""
    half = len(buffer) // 2
    return (start - own + half) % len(buffer) - half
