"""What is made of the others' numbers is judged as far as a narrow dtype tells."""

from __future__ import annotations

from exchanging import Exchanging, note, round_whole
from grouped_losses import by_statistics, squares_in_half
from grouped_training import Simulator

from distbench.diagnose.judge import judge
from distbench.verdict import Status


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
    assert "narrower dtype" in judgement.message, judgement.findings
    assert all(finding.step == 1 for finding in judgement.findings)
    twice = Simulator(squares_in_half, lambda *_: 3.0, spoilt=0).make_evidence()
    first = judge(round_whole(twice, 1e-3, "data")).findings[0]
    assert (first.code, first.step) == ("loss-not-scaled", 0)
