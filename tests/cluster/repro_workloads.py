"""Compares the workloads with what a script writes of them, in a process of its own."""

from __future__ import annotations

import base64
import itertools
import zlib

import numpy as np
import tensorflow as tf

from distbench.repro.workloads import write_workload
from distbench.scenario import Scenario
from distbench.scenario.choices import DTYPES, WORKLOADS
from distbench.worker.workloads import find_workload

EXAMPLES, SEED, STEPS = 16, 7, 3


def compare(name: str, dtype: str) -> None:
    """Raise where an array, a loss or the penalty differs in a bit."""
    workload = find_workload(name)(examples=EXAMPLES, dtype=dtype, seed=SEED)
    workload.build()
    written = write_workload(
        Scenario(
            target="a:b",
            workload=name,
            dtype=dtype,
            examples=EXAMPLES,
            seed=SEED,
            steps=STEPS,
        )
    )
    known = {
        "base64": base64,
        "zlib": zlib,
        "np": np,
        "tf": tf,
        "SEED": SEED,
        "EXAMPLES": EXAMPLES,
        "DTYPE": workload.dtype.as_numpy_dtype,
    }
    exec(written.defines, known)
    options = {"n": "", "known": known}
    made = f"lambda v, n: tf.Variable(v.astype(DTYPE), name=n{written.options})"
    make = eval(made, {**known, **options})
    variables = [make(value, name) for name, value in known["START"].items()]
    for ours, theirs in zip(workload.variables(), variables, strict=True):
        assert ours.name == theirs.name
        assert ours.constraint is theirs.constraint
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy(), strict=True)
    for step in range(STEPS):
        batches = workload.data(step), known["data"](step)
        for ours, theirs in zip(*batches, strict=True):
            np.testing.assert_array_equal(ours, theirs, strict=True)
        losses = (
            workload.compute_losses(batches[0]),
            known["compute_losses"](*variables, *batches[1]),
        )
        np.testing.assert_array_equal(*losses)
    compare_penalty(workload, written.penalty, {**known, "variables": variables})


def compare_penalty(workload, text, known) -> None:
    penalty = workload.compute_penalty()
    assert (penalty is None) == (not text)
    if penalty is not None:
        known.update(strategy=tf.distribute.get_strategy(), loss=tf.zeros_like(penalty))
        exec("if True:\n" + text, known)
        assert float(penalty) == float(known["loss"])


if __name__ == "__main__":
    for case in itertools.product(WORKLOADS, DTYPES):
        compare(*case)
        print(*case, "equal")
