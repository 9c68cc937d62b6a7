"""Shards that are run again say how far the same ops on the same numbers may lie apart.

And what one replica has wrong is not undone because the sum of all does not show it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gradient_values import to_array
from swept import swept
from training_simulator import KERNEL, Fault, observe

from distbench.diagnose.judge import judge
from distbench.trace import WHOLE
from distbench.verdict import Status

ROUNDOFF = 2.0**-24
FACTOR = 1 + 1e-6


def run_shards_again(evidence, *, apart=0.0, times=2):
    """Reruns that lie `apart` roundoffs from the reference, one up and one down."""

    def move(value, sign):
        moved = to_array(value).astype(np.float64) * (1 + sign * apart * ROUNDOFF)
        return moved.astype(np.float32) if apart else value

    shards = [
        (key, value)
        for key, value in evidence.reference.select()
        if key.phase in ("loss", "local_gradient") and key.replica != WHOLE
    ]
    return replace(
        evidence,
        reruns=tuple(
            replace(
                evidence.reference,
                name="rerun",
                values={key: move(value, (-1) ** number) for key, value in shards},
            )
            for number in range(times)
        ),
    )


def scale_kernel(factor):
    def spoil(gradients, replica, step):
        del step
        if replica != 1:
            return gradients
        wide = gradients[KERNEL].astype(np.float64) * factor
        return {**gradients, KERNEL: wide.astype(np.float32)}

    return Fault(local=spoil)


def scale_loss(factor):
    def spoil(loss, replica):
        return np.float32(np.float64(loss) * (factor if replica == 1 else 1.0))

    return Fault(loss=spoil)


PLACES = {"loss": scale_loss, "local_gradient": scale_kernel}


@pytest.mark.parametrize("replicas", [2, *swept(8)])
@pytest.mark.parametrize("phase", list(PLACES))
def test_a_factor_that_shards_do_not_show_is_reported(phase, replicas):
    setup = {"replicas": replicas, "examples": 4 * replicas, "steps": 3}
    spoilt = observe(PLACES[phase](FACTOR), **setup)
    judgement = judge(run_shards_again(spoilt))
    assert judgement.status is Status.FAIL
    [finding] = judgement.findings
    assert finding.phase == phase
    assert finding.replicas == (1,)
    assert finding.ratio == pytest.approx(FACTOR, abs=2e-7)
    assert judge(run_shards_again(observe(**setup))).status is Status.PASS
    assert judge(spoilt).status is Status.PASS  # the twins alone hide it


@pytest.mark.parametrize("phase", list(PLACES))
def test_what_shards_show_themselves_is_no_fault(phase):
    """A cluster may round as the reruns do."""
    setup = {"replicas": 2, "steps": 3}
    cluster = observe(PLACES[phase](FACTOR), **setup)
    assert judge(run_shards_again(cluster, apart=17)).status is Status.PASS


@pytest.mark.parametrize("phase", list(PLACES))
def test_few_reruns_do_not_narrow_a_bound(phase):
    cluster = observe(PLACES[phase](FACTOR), replicas=2, steps=1)
    assert judge(run_shards_again(cluster, times=1)).status is Status.PASS


@pytest.mark.parametrize(
    "size", [1e-6, 1e-3, *swept(3e-6, 1e-5, 3e-5, 1e-4, 1e-2, 1e-1)]
)
@pytest.mark.parametrize("replicas", [2, *swept(8)])
def test_what_one_replica_has_wrong_is_not_undone_by_the_sum(replicas, size):
    """Beside the sum of all it is small, and drowns in what the twins allow it."""
    setup = {"replicas": replicas, "examples": 8 * replicas, "steps": 3}
    spoilt = observe(scale_kernel(1 + size), **setup)
    assert judge(run_shards_again(spoilt)).status is Status.FAIL


def test_scaled_up_and_averaged_is_still_undone():
    def scale(replica, setup):
        del replica
        return float(setup.replicas)

    def average(local, step):
        del step
        count = len(local)
        total = {
            path: (np.sum([to_array(g[path]) for g in local], axis=0) / count).astype(
                np.float32
            )
            for path in local[0]
        }
        return [total for _ in local]

    fault = Fault(scale=scale, reduce=average, loss=lambda loss, r: loss / 4)
    evidence = run_shards_again(observe(fault, replicas=4, steps=3))
    assert judge(evidence).status is Status.PASS
