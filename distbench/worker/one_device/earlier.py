"""Steps once more from variables of some steps before: what would a late reader see?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from distbench.evidence import Tier
from distbench.trace import COMPUTED, WHOLE, Trace, TraceKey, Value
from distbench.worker.one_device.reference import Reference
from distbench.worker.process.failures import SubjectError
from distbench.worker.state.values import are_near, fit_part, have_same_bits
from distbench.worker.stepping.steps import Step
from distbench.worker.taps.collect import State

_MOST_BEHIND = 4
"""Steps by which a reader is told to be late."""


def rerun_earlier(
    reference: Reference, tier: Tier, observed: Trace, recorded: Trace
) -> tuple[Trace, ...]:
    """Loss and gradients of each step's own batch, from earlier variables.

    Nothing where the cluster's are not plainly others, and in a tier in which all steps
    start from the same variables, or from what nobody knows.

    Args:
        reference: Ran all steps of the tier before.
        tier: Which one.
        observed: What the cluster did.
        recorded: The single-device run.

    Returns:
        By how many steps late, from 1: what each step that is late enough would give,
        for the whole batch and for each replica's shard.
    """
    if tier != "bounded" or not _is_other(observed, recorded):
        return ()
    session = reference.session
    session.program.turn_to(tier)
    model = {v.path for v in session.variables if v.role == "variable"}
    starts = reference.starts.list_whole(tier)
    # Steps that were traced before may have lost their taps to a replay.
    whole = session.make_step(any_size=reference.shard_step.any_size)
    shard = whole
    if session.program.shards_known:
        shard = session.make_step(session.program.local_step)
    found: list[Trace] = []
    for lag in range(1, min(len(starts) - 1, _MOST_BEHIND) + 1):
        values = session.make_values()
        for step in range(lag, len(starts)):
            state: State = {
                key: starts[step - lag][key] if key[0] in model else value
                for key, value in starts[step].items()
            }
            batch = reference.draw(step)
            runs = [(WHOLE, batch, whole)]
            if reference.replicas > 1:
                parts = reference.sizes.cut(step, batch)
                runs += [(r, part, shard) for r, part in enumerate(parts)]
            for replica, part, by in runs:
                session.restore_state(state)
                try:
                    _run(reference, step, part, by, is_whole=replica == WHOLE)
                except SubjectError:
                    continue  # a program may take no other batch than its own
                session.collect_taps(step, values, replica=replica, phases=COMPUTED)
        found.append(reference.make_trace(f"{lag} behind", values))
    return tuple(found)


def _run(
    reference: Reference, step: int, batch: Any, by: Step, *, is_whole: bool
) -> None:
    if is_whole:
        reference.session.program.replicas = 1
        reference.session.begin_step(step)
        reference.session.run(by, [batch])
    else:
        reference.run_shard(step, batch, by)


def _is_other(observed: Trace, recorded: Trace) -> bool:
    """Whether a loss or gradient after the first step differs by more than rounding.

    Be it from what one device has, or from as large a part of that as in the first
    step, which nobody can be late for: where a program takes means, a replica has a
    part of the mean over its shard.
    """
    for phase in COMPUTED:
        for key, value in observed.select(phase=phase):
            expected = _find_expected(recorded, key)
            if key.step == 0 or key.replica == WHOLE or expected is None:
                continue
            dtype = recorded.dtypes.get(key.variable)
            if have_same_bits(expected, value) or are_near(expected, value, dtype):
                continue
            first = replace(key, step=0)
            part = fit_part(_find_expected(recorded, first), observed.get(first))
            if not are_near(expected, value, dtype, part=part):
                return True
    return False


def _find_expected(recorded: Trace, key: TraceKey) -> Value | None:
    value = recorded.get(key)
    return recorded.get(key.at(WHOLE)) if value is None else value
