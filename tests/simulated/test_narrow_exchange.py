"""What is made of the others' numbers is judged as far as a narrow dtype tells."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from exchanging import Exchanging, note, round_whole
from grouped_losses import by_statistics, mean_in_half, share_in_half, squares_in_half
from grouped_training import Simulator, lose_last, lose_sum

from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.trace import GRADIENTS, WHOLE
from distbench.verdict import Status

SOME_SHARDS, SOME_STEPS, ALL_STEPS = 2.0**13, 2.0**14, 2.0**15
"""Loss scales at which shards alone overflow, one device in a step, and in each."""


def test_features_of_others_are_judged_as_far_as_a_narrow_dtype_tells() -> None:
    near = note(Exchanging(scale=1 + 1e-4).make_evidence(), "features")
    assert judge(near).status is Status.FAIL
    judgement = judge(round_whole(near, share=1e-3))
    assert judgement.status is Status.PASS
    assert "narrower dtype" in judgement.message
    (finding,) = judge(
        round_whole(Simulator(by_statistics).make_evidence(), share=1e-3)
    ).findings
    assert (finding.code, finding.phase) == ("unexplained", "loss")


def test_a_count_over_all_is_judged_as_far_as_a_narrow_dtype_tells() -> None:
    """It scales a loss before the gradient, which rounds otherwise than a shard's."""
    near = Simulator(squares_in_half, lambda *_: 1 + 1e-4).make_evidence()
    assert judge(round_whole(near, 1e-3, "")).status is Status.FAIL
    judgement = judge(round_whole(near, 1e-3, "data"))
    assert judgement.status is Status.PASS, judgement.findings
    twice = Simulator(squares_in_half, lambda *_: 3.0).make_evidence()
    first = judge(round_whole(twice, 1e-3, "data")).findings[0]
    assert (first.code, first.phase) == ("loss-not-scaled", "loss")


def test_what_rounding_hides_of_features_is_not_judged() -> None:
    evidence = round_whole(Simulator(by_statistics).make_evidence(), share=0.9)
    judgement = judge(evidence)
    assert judgement.status is Status.PASS
    assert "narrower dtype" not in judgement.message


def test_a_step_that_overflows_tells_nothing_of_the_noise_of_the_others() -> None:
    near = Simulator(squares_in_half, lambda *_: 1 + 1e-4, spoilt=0).make_evidence()
    judgement = judge(round_whole(near, 1e-3, "data"))
    assert judgement.status is Status.PASS, judgement.findings
    assert "narrower dtype" in judgement.message
    twice = Simulator(squares_in_half, lambda *_: 3.0, spoilt=0).make_evidence()
    first = judge(round_whole(twice, 1e-3, "data")).findings[0]
    assert (first.code, first.step) == ("loss-not-scaled", 0)


def scale_loss(scale: float, limit: float = np.inf, **options: Any) -> Evidence:
    """A mean in float16 under a loss scale; a step that overflows is left out.

    The norm of the sum may be limited.
    """

    def unscale(total: np.ndarray) -> np.ndarray:
        if not np.isfinite(total).all():
            return np.zeros_like(total)
        handed = total / np.float32(scale)
        return handed * min(np.float32(1), np.float32(limit / np.linalg.norm(handed)))

    simulator = Simulator(
        partial(mean_in_half, scale=scale),
        on_cluster=partial(share_in_half, scale=scale),
        hand_on=unscale,
        **options,
    )
    phases = ("loss", *GRADIENTS)
    return round_whole(simulator.make_evidence(), 1e-3, "", phases)


@pytest.mark.parametrize("scale", [SOME_SHARDS, SOME_STEPS])
def test_shards_that_overflow_alone_are_no_measure_of_their_replicas(scale) -> None:
    evidence = scale_loss(scale)
    finite = [evidence.reference.find_finite(step) for step in range(3)]
    assert not all(all(by_replica.values()) for by_replica in finite)
    wholes = [by_replica[WHOLE] for by_replica in finite]
    assert all(wholes) == (scale == SOME_SHARDS)
    judgement = judge(evidence)
    assert judgement.status is Status.PASS, judgement.findings
    assert "narrower dtype" in judgement.message


@pytest.mark.parametrize("scale", [SOME_SHARDS, SOME_STEPS])
@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ({"weigh": lambda *_: 3.0}, "loss-not-scaled"),
        ({"weigh": lambda *_: 1.02}, "scale-error"),
        ({"reduce": lose_sum}, "missing-reduction"),
        ({"reduce": lose_last}, "replica-dropped"),
    ],
)
def test_what_is_wrong_shows_though_shards_alone_overflow(scale, fault, code) -> None:
    assert judge(scale_loss(scale, **fault)).findings[0].code == code


@pytest.mark.parametrize("scale", [SOME_SHARDS, SOME_STEPS])
def test_what_is_clipped_is_judged_though_shards_alone_overflow(scale) -> None:
    judgement = judge(scale_loss(scale, limit=0.5))
    assert judgement.status is Status.PASS, judgement.findings
    first = judge(scale_loss(scale, limit=0.5, reduce=lose_last)).findings[0]
    assert first.phase == "reduced_gradient"


def test_gradients_are_not_told_where_one_device_always_overflows() -> None:
    judgement = judge(scale_loss(ALL_STEPS))
    assert judgement.status is Status.UNDECIDABLE, judgement.findings
    assert "overflows" in judgement.message
    (finding, *_) = judge(scale_loss(ALL_STEPS, weigh=lambda *_: 3.0)).findings
    assert (finding.code, finding.phase) == ("loss-not-scaled", "loss")
