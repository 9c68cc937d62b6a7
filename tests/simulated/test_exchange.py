"""Judging programs whose replicas take something of each other before the gradient."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from evidence_changes import change_evidence
from exchanging import Exchanging, note
from grouped_losses import Batch, Compute, by_statistics
from grouped_training import Simulator
from inside_runs import look

from distbench.compare.arrays.measure import Margin
from distbench.compare.arrays.pair import GLOBAL, Pair
from distbench.diagnose.causes.exchange import join_factors, tell_lost_gradient
from distbench.diagnose.causes.explain import Explained, explain_all
from distbench.diagnose.clues.context import Context
from distbench.diagnose.judge import judge
from distbench.diagnose.stages import chain as stages
from distbench.evidence import Evidence
from distbench.trace import COMPUTED, WHOLE, Trace, TraceKey, Value
from distbench.verdict import Status


def test_features_of_others_leave_no_meaning_to_a_shard_alone() -> None:
    evidence = Simulator(by_statistics).make_evidence()
    assert judge(note(evidence, "")).status is Status.PASS
    assert judge(note(evidence, "data")).status is Status.PASS
    judgement = judge(note(evidence, "features"))
    assert judgement.status is Status.FAIL
    (finding,) = judgement.findings
    assert (finding.code, finding.phase) == ("unexplained", "loss")
    assert "global batch" in finding.explanation


@pytest.mark.parametrize(
    "of_reference",
    [{"draws": {"model.py:3": "subject"}}, {"narrowest": "float16"}],
    ids=["draws", "half"],
)
def test_where_one_device_is_no_measure_nothing_is_made_of_it(
    of_reference: dict[str, object],
) -> None:
    evidence = Simulator(by_statistics).make_evidence()
    assert judge(note(evidence, "features", **of_reference)).status is Status.PASS


def test_what_arrives_at_the_global_batch_passes() -> None:
    for exchange in ("data", "features"):
        assert judge(note(Exchanging().make_evidence(), exchange)).status is Status.PASS


def test_a_known_mistake_in_the_global_batch_is_told_of_those_who_count() -> None:
    """To one device the replicas' loss is neither sum nor mean."""
    evidence = Exchanging(scale=1 / 3).make_evidence()
    assert judge(note(evidence, "")).status is Status.PASS
    for exchange in ("data", "features"):
        first = judge(note(evidence, exchange)).findings[0]
        assert (first.code, first.phase) == ("loss-scaled-twice", "loss")


def test_what_nearly_has_a_factor_has_another_cause() -> None:
    evidence = Exchanging(
        scale=3.0, bent=slice(None), least=1.0, off=1.02
    ).make_evidence()
    (found,) = judge(note(evidence, "features")).findings
    assert (found.code, found.phase) == ("unexplained", "loss")
    assert found.explanation.count("made of what the others computed") == 1


def test_right_losses_with_wrong_gradients_tell_what_the_tape_lost() -> None:
    evidence = Exchanging(bent=slice(2, 11)).make_evidence()
    judgement = judge(note(evidence, "features"))
    (finding,) = judgement.findings
    assert (finding.code, finding.phase) == ("unexplained", "local_gradient")
    assert "constant to its tape" in finding.explanation
    assert finding.explanation.endswith("behind stop_gradient does not.")
    other = judge(note(Exchanging(scale=1.3).make_evidence(), "features"))
    assert "constant to its tape" not in other.findings[0].explanation


def test_what_the_tape_lost_is_not_taken_for_changed_before_the_sum() -> None:
    """A shard that is given what others compute has the gradients that are left."""
    evidence = note(Exchanging(bent=slice(2, 11)).make_evidence(), "features")
    observed, reference = evidence.observed, evidence.reference
    given = {k: v for k, v in observed.values.items() if k.phase in COMPUTED}
    trace = replace(reference, values=given)
    probes = {"exchanged": trace, "exchanged-regrouped": trace}
    seen = replace(
        evidence, probes={**evidence.probes, **probes}, inside=look(of_all=True)
    )
    (finding,) = judge(seen).findings
    assert (finding.code, finding.phase) == ("unexplained", "local_gradient")
    assert "constant to its tape" in finding.explanation
    # Counts over all are constants on one device as well.
    (finding,) = judge(note(seen, "data")).findings
    assert finding.code == "nonlinear-before-reduction"


def test_the_loss_that_is_returned_may_be_another_than_the_one_that_trains() -> None:
    evidence = note(Exchanging(bent=slice(2, 11)).make_evidence(), "features")
    notes = {**evidence.observed.notes, "micro_steps": 2}
    twice = replace(evidence, observed=replace(evidence.observed, notes=notes))
    (finding,) = judge(twice).findings
    assert finding.code == "unexplained"
    assert "constant to its tape" not in finding.explanation


def scale_exchanged(evidence: Evidence, *, arrives: bool) -> Evidence:
    """With what one device computes if what is exchanged were divided by N.

    Args:
        evidence: Of a program whose losses are made of what is exchanged.
        arrives: Whether the replicas arrive there.
    """
    sums: dict[TraceKey, Value] = {}
    for key, value in evidence.observed.values.items():
        if key.phase in COMPUTED:
            whole = key.at(WHOLE)
            sums[whole] = np.asarray(sums.get(whole, 0.0) + np.asarray(value))
    reference = evidence.reference
    divided = replace(reference, values=sums if arrives else reference.values)
    return replace(evidence, probes={**evidence.probes, "exchanged-divided": divided})


def test_a_mean_that_is_exchanged_in_place_of_a_sum_is_told() -> None:
    wrong = note(Exchanging(bent=slice(None), off=1.02).make_evidence(), "features")
    (finding,) = judge(scale_exchanged(wrong, arrives=True)).findings
    assert (finding.code, finding.phase) == ("scale-error", "loss")
    assert "a mean in place of a sum" in finding.explanation
    assert finding.ratio == pytest.approx(1 / 3)
    (finding,) = judge(scale_exchanged(wrong, arrives=False)).findings
    assert finding.code == "unexplained"


def add_head(evidence: Evidence, of: Evidence) -> Evidence:
    """Give the model a second variable, that of another run."""

    def add(trace: Trace, other: Trace) -> Trace:
        values = {
            replace(key, variable="head"): value
            for key, value in other.values.items()
            if key.variable
        }
        head = replace(trace.variables[0], path="head")
        return replace(
            trace,
            values={**trace.values, **values},
            variables=(*trace.variables, head),
        )

    phase = "reduced_gradient"
    return change_evidence(
        evidence,
        observed=add(evidence.observed, of.observed),
        reference=add(evidence.reference, of.reference),
        replays={phase: add(evidence.fed.replays[phase], of.fed.replays[phase])},
        twins=tuple(map(add, evidence.twins, of.twins)),
        probes={name: add(t, of.probes[name]) for name, t in evidence.probes.items()},
    )


def test_gradients_of_losses_that_weigh_wrongly_have_no_cause_of_their_own() -> None:
    """Where each differentiates features of all, they follow from all losses."""
    bent = Exchanging(scale=3.0, bent=slice(None)).make_evidence()
    evidence = add_head(bent, Exchanging(scale=3.0).make_evidence())
    (finding,) = judge(note(evidence, "features")).findings
    assert (finding.code, finding.phase) == ("loss-not-scaled", "loss")
    assert finding.variables == ("", "head")


def test_factors_that_are_near_are_no_findings_of_their_own() -> None:
    evidence = note(Exchanging(scale=1.3).make_evidence(), "features")
    context = Context(
        evidence=evidence, phase="local_gradient", cases=(), right=frozenset()
    )
    near, other = (
        Explained(
            code=code,
            detail=code,
            confidence=confidence,
            cases=(),
            phase="local_gradient",
        )
        for code, confidence in (("scale-error", 0.6), ("unexplained", 0.0))
    )

    def join(*causes: Explained) -> list[str]:
        return [cause.code for cause in join_factors(context, causes)]

    assert join(near, other) == ["unexplained"]
    assert join(near) == ["scale-error"]
    exact = replace(near, confidence=1.0)
    assert sorted(join(exact, other)) == ["scale-error", "unexplained"]


def test_a_factor_that_explains_all_is_no_part_of_what_a_tape_lost() -> None:
    evidence = note(Exchanging(bent=slice(2, 11)).make_evidence(), "features")
    key = TraceKey(step=0, phase="local_gradient", variable="theta")
    pairs = tuple(
        Pair(
            key=replace(key, step=step),
            relation="total",
            against=GLOBAL,
            observed=np.ones(2),
            expected=np.zeros(2),
            margin=Margin(),
            dtype="float32",
        )
        for step in range(evidence.reference.steps)
    )
    context = Context(evidence=evidence, phase="local_gradient", cases=pairs)
    exact, odd, open_one = (
        replace(explain_all(context, code, code, confidence), cases=pairs[:1])
        for code, confidence in (
            ("scale-error", 1.0),
            ("scale-error", 0.6),
            ("unexplained", 0.0),
        )
    )
    told, *others = tell_lost_gradient(context, (exact, odd, open_one))
    assert "constant to its tape" in told.detail
    assert len(told.cases) == 2
    assert others == [exact]


class InHalves(Exchanging):
    """Gradients are in float16, which leaves no factor exact, and losses are not."""

    def run(
        self, batch: Batch, theta: Batch, compute: Compute | None = None
    ) -> tuple[np.float32, Batch]:
        loss, gradient = super().run(batch, theta, compute)
        return loss, gradient.astype(np.float16).astype(np.float32)

    def make_trace(self, values: dict[TraceKey, Value], **notes: object) -> Trace:
        rounded: dict[TraceKey, Value] = {
            key: value if key.phase == "loss" else np.asarray(value, np.float16)
            for key, value in values.items()
        }
        trace = super().make_trace(rounded, **notes)
        variables = tuple(replace(v, dtype="float16") for v in trace.variables)
        return replace(trace, variables=variables)


@pytest.mark.parametrize("scale", [1.02, 1.05, 1.1, 1.3])
def test_one_factor_of_loss_and_gradients_is_told_however_it_is_rounded(
    scale: float,
) -> None:
    assert judge(note(InHalves().make_evidence(), "features")).status is Status.PASS
    judgement = judge(note(InHalves(scale=scale).make_evidence(), "features"))
    assert judgement.status is Status.FAIL
    (finding,) = judgement.findings
    assert (finding.code, finding.phase) == ("scale-error", "loss")
    assert finding.ratio == pytest.approx(scale, rel=1e-3)


def test_what_no_finding_is_left_of_fails_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever leaves a cause to another finding may be wrong about that."""
    wrong = note(Exchanging(scale=2.0).make_evidence(), "features")
    assert judge(wrong).findings
    monkeypatch.setattr(stages, "leave_out_led", lambda *_: [])
    judgement = judge(wrong)
    assert judgement.status is Status.FAIL
    (finding,) = judgement.findings
    assert (finding.code, finding.phase) == ("unexplained", "loss")
