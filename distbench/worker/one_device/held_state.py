"""Steps on one device in which state that examples lead is assigned the cluster's.

A loss may be made of a statistic that its own step has assigned before. Where replicas
hold another one than one device, so is their loss, and nothing else need be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from distbench.evidence import Tier
from distbench.trace import COMPUTED, WHOLE, Trace, TraceKey, Value
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
    session, program = reference.session, reference.session.program
    is_open = program.shards_known or program.is_compiled or reference.scenario.injected
    if tier != "bounded" or is_open or observed.replicas == 1:
        return None
    held = _list_held(reference, observed, recorded)
    if not held:
        return None
    values = session.make_values()
    try:
        by = session.make_step()
        with _assign(reference, held) as put, session.guard("step"):
            for step, batch, start in reference.list_steps(tier):
                session.restore_state(start)
                put({path: steps[step] for path, steps in held.items()})
                reference.run_whole(step, batch, by)
                session.collect_taps(step, values, replica=WHOLE, phases=COMPUTED)
    except SubjectError:
        return None
    return reference.make_trace("held", values, held=[*held])


def _list_held(
    reference: Reference, observed: Trace, recorded: Trace
) -> dict[str, list[npt.NDArray[Any]]]:
    """By path, what all replicas hold after each step, where that is another one."""
    written = reference.list_written()
    found: dict[str, list[npt.NDArray[Any]]] = {}
    for info in recorded.variables:
        is_model = info.role == "variable" and info.synchronised
        is_led = info.path in written and info.path not in recorded.trained
        if not (is_model and is_led):
            continue
        steps = [
            [np.asarray(value) for _, value in _select(observed, info.path, step)]
            for step in range(recorded.steps)
        ]
        if not all(c and all(have_same_bits(c[0], one) for one in c) for c in steps):
            continue
        due = [value for _, value in _select(recorded, info.path, replica=WHOLE)]
        pairs = zip(due[1:], (copies[0] for copies in steps), strict=True)
        if any(not are_near(value, own, info.dtype) for value, own in pairs):
            found[info.path] = [copies[0] for copies in steps]
    return found


def _select(
    trace: Trace, path: str, step: int | None = None, replica: int | None = None
) -> Iterator[tuple[TraceKey, Value]]:
    return trace.select(step=step, phase="variable", variable=path, replica=replica)


@contextmanager
def _assign(
    reference: Reference, held: Mapping[str, object]
) -> Iterator[Callable[[Mapping[str, npt.NDArray[Any]]], None]]:
    """Inside, whatever a step assigns to some state is what was put in last."""
    components = {
        variable.info.path: variable.components[0]
        for variable in reference.session.table.state
        if variable.info.path in held
    }
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
