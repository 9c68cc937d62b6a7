"""The gradient of a regularisation alone, where the workload knows it."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from distbench.trace import Trace, TraceKey, Value
from distbench.worker.one_device.reference import Reference
from distbench.worker.subjects.optimizer_program import OptimizerProgram


def record_penalty(reference: Reference) -> Trace | None:
    """As local gradients of the first step; None where there is no such thing."""
    session = reference.session
    program = session.program
    if not isinstance(program, OptimizerProgram):
        return None
    session.restore_state(reference.initial)
    pairs = program.compute_penalty_gradient()
    if not pairs:
        return None
    values: dict[TraceKey, Value] = {
        TraceKey(
            step=0,
            phase="local_gradient",
            variable=session.table.find_path(variable),
        ): np.array(tf.convert_to_tensor(gradient).numpy())
        for variable, gradient in pairs
    }
    return reference.make_trace("penalty", values)
