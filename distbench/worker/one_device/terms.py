"""What each term of a loss gives alone, where its gradients are not arrived at."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

import numpy as np

from distbench.evidence import Tier
from distbench.trace import WHOLE, Phase, Trace, TraceKey, Values
from distbench.trace.numbers import densify
from distbench.worker.one_device.feeder import Feeder
from distbench.worker.one_device.reference import Reference
from distbench.worker.process.failures import SubjectError
from distbench.worker.state.values import fit_part
from distbench.worker.stepping.session import Session
from distbench.worker.stepping.steps import Step
from distbench.worker.taps.terms import find_terms

T = TypeVar("T")

_TOLD: tuple[Phase, ...] = ("local_gradient",)
SAME = 1e-3
"""Share of a gradient that rounding may leave, where it only decides what to ask."""


def split_loss(
    feeder: Feeder, tier: Tier, observed: Trace, recorded: Trace
) -> tuple[Trace, ...]:
    """The gradients of each term of the loss, of the global batch and of each shard.

    Empty where the replicas' gradients add up to one device's, or to a multiple, or are
    those of their shards; where the loss is no sum of several terms, or a step
    differentiates more than one; and of a workload of the bench, whose loss is known.

    Args:
        feeder: Runs the reference's steps.
        tier: Which one.
        observed: What the cluster did.
        recorded: The single-device run.
    """
    reference, session = feeder.reference, feeder.reference.session
    if session.program.shards_known or not feeder.takes(tier):
        return ()
    if not _is_open(observed, recorded):
        return ()

    def ask(number: int) -> Trace:
        return run_term(reference, tier, number, _TOLD)[0]

    found = ask_terms(session, ask)
    return tuple(found) if found and _add_up(found, recorded) else ()


def ask_terms(session: Session, ask: Callable[[int], T]) -> list[T]:
    """What a function gives for each term of the loss, by its number.

    Steps that it has traced differentiate the term in place of the loss. Empty where
    the loss is one term, or many; where a step differentiates more than one, of which
    nobody says whose terms they are; and where a program makes use of what its whole
    loss gives.
    """
    board = session.board
    try:
        found = []
        for number in range(_count_terms(session)):
            board.term = number
            found.append(ask(number))
    except SubjectError:
        return []
    else:
        return found
    finally:
        board.term = None


def _count_terms(session: Session) -> int:
    targets = session.board.seen.trained_by.get(0, [])
    count = len(find_terms(targets[0])) if len(targets) == 1 else 0
    return count if count > 1 else 0


def run_term(
    reference: Reference, tier: Tier, number: int, phases: Collection[Phase]
) -> tuple[Trace, Step]:
    """What a term gives of the global batch and of each shard, in each step.

    Args:
        reference: Ran all its steps before.
        tier: From whose states they start.
        number: Which term, for its name.
        phases: What to keep.

    Returns:
        That, and the step that differentiates it.
    """
    session = reference.session
    by = session.make_step(any_size=reference.shard_step.any_size)
    values = session.make_values()
    for step, batch, before in reference.list_steps(tier):
        session.restore_state(before)
        reference.run_whole(step, batch, by)
        session.collect_taps(step, values, replica=WHOLE, phases=phases)
        for replica, shard in enumerate(reference.sizes.cut(step, batch)):
            reference.observes_shard(
                tier, step, replica, shard, values, by=by, phases=phases
            )
    return reference.make_trace(f"term {number}", values), by


def _is_open(observed: Trace, recorded: Trace) -> bool:
    """Whether the gradients are another multiple of what is due for each variable."""
    replicas = range(observed.replicas)
    for step in range(recorded.steps):
        whole = _join(recorded, step, WHOLE)
        own = [_join(observed, step, r) for r in replicas]
        alone = [_join(recorded, step, r) for r in replicas]
        if whole.size == 0 or any(part.shape != whole.shape for part in own):
            continue
        if _is_multiple(np.sum(own, axis=0), whole):
            continue
        if not all(map(_is_multiple, own, alone)):
            return True
    return False


def _is_multiple(seen: np.ndarray, due: np.ndarray) -> bool:
    if seen.shape != due.shape:
        return False
    rest = seen - fit_part(due, seen) * due
    return bool(np.linalg.norm(rest) <= SAME * np.linalg.norm(seen))


def _join(trace: Trace, step: int, replica: int) -> np.ndarray:
    """The local gradients of a step in one row."""
    found = trace.select(step=step, phase="local_gradient", replica=replica)
    own = sorted(
        ((k.variable, densify(v).ravel()) for k, v in found), key=lambda x: x[0]
    )
    return np.concatenate([value for _, value in own] or [np.zeros(0)])


def _add_up(terms: list[Trace], recorded: Trace) -> bool:
    """Whether the terms make up what the loss gives."""
    due: Values[TraceKey] = Values(recorded.values).keep(
        lambda key: key.phase == "local_gradient" and key.replica == WHOLE
    )
    for key, value in due.items():
        parts = [found for term in terms if (found := term.get(key)) is not None]
        if len(parts) < len(terms):
            return False
        rest = np.sum([densify(part) for part in parts], axis=0) - densify(value)
        if np.linalg.norm(rest) > SAME * np.linalg.norm([densify(p) for p in parts]):
            return False
    return bool(due)
