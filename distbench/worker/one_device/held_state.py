"""Steps on one device in which state that examples lead is assigned the cluster's.

A loss may be made of a statistic that its own step has assigned before. Where replicas
hold another one than one device, so is their loss, and nothing else need be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from distbench.evidence import Tier
from distbench.trace import (
    COMPUTED,
    STATE,
    WHOLE,
    Phase,
    Trace,
    TraceKey,
    VariableInfo,
)
from distbench.worker.one_device.reference import Reference
from distbench.worker.process.failures import SubjectError
from distbench.worker.process.intercept import hide_from_autograph
from distbench.worker.state.components import read_component, write_component
from distbench.worker.state.values import are_near, have_same_bits

_ASSIGNS = ("assign", "assign_add", "assign_sub")


def hold_state(
    reference: Reference, tier: Tier, observed: Trace, recorded: Trace
) -> Trace | None:
    """Loss and gradients of the global batch, with what the replicas hold assigned.

    Args:
        reference: Ran all steps of the tier before.
        tier: Which one.
        observed: What the cluster did.
        recorded: The single-device run.

    Returns:
        Those of each step, as `WHOLE`; `held` notes the paths of what was assigned.
        None where no state that all have alike and no gradient trains is plainly
        another one than on one device, where the step cannot be traced so, and in a
        tier in which a step starts from what nobody knows.
    """
    program = reference.session.program
    is_open = program.shards_known or program.is_compiled or reference.scenario.injected
    if tier != "bounded" or is_open or observed.replicas == 1:
        return None
    models = [info.path for info in recorded.variables if info.role == "variable"]
    return take_holding(reference, tier, observed, recorded, models, COMPUTED)


def take_holding(
    reference: Reference,
    tier: Tier,
    observed: Trace,
    recorded: Trace,
    paths: Collection[str],
    phases: Collection[Phase],
) -> Trace | None:
    """Steps of the global batch in which some state is assigned the cluster's.

    Args:
        reference: Ran all steps of the tier before.
        tier: Which one.
        observed: What the cluster did.
        recorded: The single-device run.
        paths: State that may be assigned; what all have alike and no gradient trains.
        phases: What to keep.

    Returns:
        These of each step, as `WHOLE`; `held` notes the paths of what was assigned.
        None where none of it is plainly another one than on one device, or a step
        cannot be traced so.
    """
    session = reference.session
    held = _list_held(reference, observed, recorded, paths)
    if not held:
        return None
    values = session.make_values()
    try:
        by = session.make_step()
        with (
            _assign(reference, held) as put,
            session.guard("step"),
        ):
            for step, batch, start in reference.list_steps(tier):
                session.restore_state(start)
                put({path: steps[step] for path, steps in held.items()})
                reference.run_whole(step, batch, by)
                session.collect_taps(step, values, replica=WHOLE, phases=phases)
                if not set(STATE).isdisjoint(phases):
                    state = session.read_state()
                    session.collect_state(step, state, values, replica=WHOLE)
    except SubjectError:
        return None
    return reference.make_trace("held", values, held=[*held])


def _list_held(
    reference: Reference, observed: Trace, recorded: Trace, paths: Collection[str]
) -> dict[str, list[npt.NDArray[Any]]]:
    """By path, what all replicas hold after each step, where that is another one."""
    written = reference.list_written()
    found: dict[str, list[npt.NDArray[Any]]] = {}
    for info in recorded.variables:
        is_led = info.path in written and info.path not in recorded.trained
        if info.path not in paths or not (info.synchronised and is_led):
            continue
        steps = [_list_copies(observed, info, step) for step in range(recorded.steps)]
        if not all(c and all(have_same_bits(c[0], one) for one in c) for c in steps):
            continue
        is_other = False
        for step, copies in enumerate(steps):
            due = recorded.get(_find_key(info, step, WHOLE))
            is_other |= due is not None and not are_near(due, copies[0], info.dtype)
        if is_other:
            found[info.path] = [copies[0] for copies in steps]
    return found


def _list_copies(
    observed: Trace, info: VariableInfo, step: int
) -> list[npt.NDArray[Any]]:
    """What each replica holds of some state after a step."""
    keys = (_find_key(info, step, replica) for replica in range(observed.replicas))
    found = (observed.get(key) for key in keys)
    return [np.asarray(value) for value in found if value is not None]


def _find_key(info: VariableInfo, step: int, replica: int) -> TraceKey:
    return TraceKey(step=step, phase=info.role, variable=info.path, replica=replica)


@contextmanager
def _assign(
    reference: Reference, held: Mapping[str, object]
) -> Iterator[Callable[[Mapping[str, npt.NDArray[Any]]], None]]:
    """Inside, whatever a step assigns to some state is what was put in last."""
    components = _find_components(reference, held)
    given = {
        path: tf.Variable(read_component(component), trainable=False)
        for path, component in components.items()
    }

    def put(values: Mapping[str, npt.NDArray[Any]]) -> None:
        for path, value in values.items():
            write_component(given[path], value)

    with ExitStack() as stack:
        for path, component in components.items():
            stack.enter_context(_replace_assigns(component, given[path]))
        yield put


def _find_components(
    reference: Reference, paths: Collection[str]
) -> dict[str, tf.Variable]:
    table = reference.session.table
    return {
        variable.info.path: variable.components[0]
        for variable in table.state
        if variable.info.path in paths
    }


@contextmanager
def _replace_assigns(component: Any, given: Any) -> Iterator[None]:
    """Inside, a variable takes what another one holds, whatever it is assigned."""
    assign = type(component).assign

    def take(*_: Any, **options: Any) -> Any:
        options.pop("value", None)
        options.pop("delta", None)
        return assign(component, given.read_value(), **options)

    hide_from_autograph(take)
    for name in _ASSIGNS:
        setattr(component, name, take)
    try:
        yield
    finally:
        for name in _ASSIGNS:
            delattr(component, name)
