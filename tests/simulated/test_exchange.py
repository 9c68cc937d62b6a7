"""Judging programs whose replicas take something of each other before the gradient."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from evidence_changes import change_evidence
from grouped_losses import (
    SHARDS,
    WIDTH,
    Batch,
    Shards,
    against_the_others,
    by_statistics,
    mean_by_statistics,
    squares_in_half,
)
from grouped_training import RATE, Simulator, by_share, put

from distbench.diagnose.context import Context
from distbench.diagnose.exchange import join_factors
from distbench.diagnose.explain import Explained
from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.trace import (
    COMPUTED,
    INITIAL,
    WHOLE,
    MetricInfo,
    Trace,
    TraceKey,
    Value,
    VariableInfo,
)
from distbench.verdict import Status

COUNTED = (0.5, 0.3, 0.2)
"""What the shards hold of what is counted; their sizes say something else."""


class Exchanging(Simulator):
    """Together the replicas compute the global batch, each its share of it.

    Args:
        scale: Factor of every replica's loss and gradient.
        bent: Which elements of the gradient get a wrong factor.
        least: The smallest of these factors; the largest is 0.9.
        off: Factor of the loss in the first step, and of each step's to the next one.
    """

    def __init__(
        self,
        *,
        scale: float = 1.0,
        bent: slice = slice(0),
        least: float = 0.5,
        off: float = 1.0,
    ) -> None:
        super().__init__(against_the_others)
        self.scale = scale
        self.bent = bent
        self.least = least
        self.off = off

    def put_cluster(
        self,
        observed: dict[TraceKey, Value],
        replay: dict[TraceKey, Value],
        step: int,
        batch: Batch,
        theta: Batch,
    ) -> None:
        """See `Simulator`."""
        loss, gradient = self.run(batch, theta)
        gradient[self.bent] *= np.linspace(self.least, 0.9, WIDTH)[self.bent]
        loss *= np.float32(self.off) ** (step + 1)
        parts = [np.float32(self.scale * by_share(r, SHARDS)) for r in range(3)]
        reduced = np.float32(sum(part * gradient for part in parts))
        for replica, part in enumerate(parts):
            put(observed, step, "loss", loss * part, replica)
            put(observed, step, "local_gradient", gradient * part, replica)
            put(observed, step, "reduced_gradient", reduced, replica)
            for values in (observed, replay):
                put(values, step, "applied_gradient", reduced, replica)
                put(values, step, "variable", theta - RATE * reduced, replica)


def note(evidence: Evidence, exchange: str, **of_reference: object) -> Evidence:
    """With what the replicas exchanged, and notes about the single-device run."""
    drawn = {"draws": {}, **of_reference}
    notes: Mapping[str, object] = {**evidence.reference.notes, **drawn}
    return replace(
        evidence,
        observed=replace(evidence.observed, notes={"draws": {}, "exchange": exchange}),
        reference=replace(evidence.reference, notes=notes),
    )


def keep_statistic(evidence: Evidence, copies: tuple[float, ...]) -> Evidence:
    """Give the model a moving mean: on one device 4, and of the shards 1, 3 and 5."""
    moving = VariableInfo(
        path="moving", role="variable", shape=(1,), dtype="float32", trainable=False
    )

    def keep(trace: Trace, numbers: Mapping[int, float]) -> Trace:
        values = dict(trace.values)
        for step in (INITIAL, *range(trace.steps)):
            for replica, number in numbers.items():
                key = TraceKey(
                    step=step, phase="variable", variable="moving", replica=replica
                )
                now = 0.0 if step == INITIAL else number
                values[key] = np.array([now], np.float32)
        return replace(trace, values=values, variables=(*trace.variables, moving))

    whole = {WHOLE: 4.0}
    return replace(
        evidence,
        reference=keep(evidence.reference, {**whole, 0: 1.0, 1: 3.0, 2: 5.0}),
        observed=keep(evidence.observed, dict(enumerate(copies))),
        twins=tuple(keep(twin, whole) for twin in evidence.twins),
    )


def test_statistics_of_the_own_examples_leave_features_no_measure() -> None:
    evidence = note(Simulator(by_statistics).make_evidence(), "features")
    judgement = judge(keep_statistic(evidence, (3.0, 3.0, 3.0)))
    assert judgement.status is Status.UNDECIDABLE
    assert "'moving' is a statistic of the own examples" in judgement.message
    synchronised = judge(keep_statistic(evidence, (4.0, 4.0, 4.0)))
    assert synchronised.status is Status.FAIL
    right = note(Exchanging().make_evidence(), "features")
    assert judge(keep_statistic(right, (4.0, 4.0, 4.0))).status is Status.PASS


def test_what_takes_what_the_losses_take_is_no_statistic_of_its_own() -> None:
    """A mean of means, of uneven shards: the moving mean is what shards alone give."""
    evidence = note(Simulator(by_statistics).make_evidence(), "features")
    evidence = keep_statistic(evidence, (3.0, 3.0, 3.0))
    notes = {**evidence.observed.notes, "shared_state": ["moving"]}
    judgement = judge(
        replace(evidence, observed=replace(evidence.observed, notes=notes))
    )
    assert judgement.status is Status.FAIL
    assert judgement.findings[0].phase == "loss"


def test_what_a_metric_counts_of_its_own_examples_is_no_part_of_a_loss() -> None:
    evidence = note(Simulator(by_statistics).make_evidence(), "features")
    evidence = keep_statistic(evidence, (3.0, 3.0, 3.0))
    shown = MetricInfo(name="shown", state=("moving",))
    observed = replace(evidence.observed, metrics=(shown,))
    assert judge(replace(evidence, observed=observed)).status is Status.FAIL


def by_count(replica: int, _: Shards) -> float:
    return COUNTED[replica]


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
    other = judge(note(Exchanging(scale=1.3).make_evidence(), "features"))
    assert "constant to its tape" not in other.findings[0].explanation


def test_the_loss_that_is_returned_may_be_another_than_the_one_that_trains() -> None:
    evidence = note(Exchanging(bent=slice(2, 11)).make_evidence(), "features")
    notes = {**evidence.observed.notes, "micro_steps": 2}
    twice = replace(evidence, observed=replace(evidence.observed, notes=notes))
    (finding,) = judge(twice).findings
    assert finding.code == "unexplained"
    assert "constant to its tape" not in finding.explanation


@pytest.mark.first(1)
@pytest.mark.parametrize(
    ("times", "code"), [(1.0, ""), (1 / 3, "loss-scaled-twice"), (3, "loss-not-scaled")]
)
def test_shards_may_weigh_what_all_replicas_count(times: float, code: str) -> None:
    simulator = Simulator(mean_by_statistics, lambda r, s: times * by_count(r, s))
    evidence = simulator.make_evidence()
    assert judge(note(evidence, "")).status is Status.FAIL
    judgement = judge(note(evidence, "data"))
    found = [(finding.code, finding.phase) for finding in judgement.findings]
    assert found == ([(code, "loss")] if code else []), judgement


def give_exchanged(evidence: Evidence, *, makes_whole: bool) -> Evidence:
    """With shards that were given what the global batch exchanges.

    Args:
        evidence: Of a program whose shards alone do not make up the global batch.
        makes_whole: Whether they do so now; else what they are given changes nothing.
    """
    reference, regrouped = evidence.reference, evidence.probes["regrouped"]
    if makes_whole:
        whole = [
            (key, np.asarray(value))
            for key, value in reference.select(replica=WHOLE)
            if key.phase in COMPUTED
        ]
        shares = [
            {
                key.at(replica): np.asarray(share * value, value.dtype)
                for key, value in whole
                for replica, share in enumerate(of_shards)
            }
            for of_shards in (COUNTED, COUNTED[::-1])
        ]
        reference, regrouped = (replace(reference, values=v) for v in shares)
    given = {"exchanged": reference, "exchanged-regrouped": regrouped}
    return replace(evidence, probes={**evidence.probes, **given})


def test_what_shards_lack_of_all_counts_makes_the_global_batch_their_measure() -> None:
    """Soft targets that follow from frequencies of all, say, or a limit."""
    wrong = note(Exchanging(bent=slice(None), off=1.02).make_evidence(), "data")
    assert judge(wrong).status is Status.PASS
    assert judge(give_exchanged(wrong, makes_whole=False)).status is Status.PASS
    (finding,) = judge(give_exchanged(wrong, makes_whole=True)).findings
    assert (finding.code, finding.phase) == ("unexplained", "loss")
    assert "made of what the others computed" in finding.explanation
    right = note(Exchanging().make_evidence(), "data")
    assert judge(give_exchanged(right, makes_whole=True)).status is Status.PASS


def give_terms(evidence: Evidence, *, doubled: bool) -> Evidence:
    """With shards of which a part is a mean, given what the global batch exchanges.

    Args:
        evidence: Of a program whose shards alone do not make up the global batch.
        doubled: Whether one device has them with each example twice as well.
    """
    reference = evidence.reference
    whole = [
        (key, np.asarray(value))
        for key, value in reference.select(step=0, replica=WHOLE)
        if key.phase in COMPUTED
    ]

    def make(counted: tuple[float, ...], means: tuple[float, ...], times: int) -> Trace:
        """Another mean than a share of all for each shard."""
        values: dict[TraceKey, Value] = {}
        for key, value in whole:
            parts = [mean * np.roll(value, r) ** 2 for r, mean in enumerate(means)]
            shares = [n / sum(SHARDS) for n in SHARDS]
            total = value - sum(n * part for n, part in zip(shares, parts, strict=True))
            for r, part in enumerate(parts):
                values[key.at(r)] = np.float32(times * counted[r] * total + part)
        return replace(reference, values=values)

    means = (0.1, 0.2, 0.5)
    given = {
        "exchanged": make(COUNTED, means, 1),
        "exchanged-regrouped": make(COUNTED[::-1], means[::-1], 1),
    }
    if doubled:
        given["exchanged-doubled"] = make(COUNTED, means, 2)
    return replace(evidence, probes={**evidence.probes, **given})


def test_a_mean_beside_what_all_count_hides_no_mistake_in_it() -> None:
    """Twice as many examples tell which part of a shard's loss is one."""
    wrong = note(Exchanging(bent=slice(None), off=1.02).make_evidence(), "data")
    assert judge(give_terms(wrong, doubled=False)).status is Status.PASS
    (finding,) = judge(give_terms(wrong, doubled=True)).findings
    assert (finding.code, finding.phase) == ("unexplained", "loss")
    right = note(Exchanging().make_evidence(), "data")
    assert judge(give_terms(right, doubled=True)).status is Status.PASS


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


def test_a_count_does_not_show_that_statistics_of_shards_are_wrong() -> None:
    evidence = note(Simulator(by_statistics).make_evidence(), "data")
    evidence = give_exchanged(evidence, makes_whole=False)
    assert judge(evidence).status is Status.PASS


def test_a_mean_of_means_counts_nothing() -> None:
    simulator = Simulator(mean_by_statistics, lambda *_: 1 / len(SHARDS))
    judgement = judge(note(simulator.make_evidence(), "data"))
    assert judgement.findings[0].code == "mean-of-means"


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


def round_whole(
    evidence: Evidence, share: float, exchange: str = "features"
) -> Evidence:
    """A step in float16, and how far a rounding to it moves the global batch's."""
    evidence = note(evidence, exchange, narrowest="float16")
    rng = np.random.default_rng(5)
    moved = {
        f"rounded-{number}": replace(
            evidence.reference,
            values={
                key: value * (1 + share * rng.choice([-1, 1], size=np.shape(value)))
                for key, value in evidence.reference.select(replica=WHOLE)
                if key.phase in COMPUTED
            },
        )
        for number in range(4)
    }
    return replace(evidence, probes={**evidence.probes, **moved})


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


def test_statistics_of_the_own_examples_leave_narrow_features_no_measure() -> None:
    evidence = round_whole(Simulator(by_statistics).make_evidence(), share=1e-3)
    judgement = judge(keep_statistic(evidence, (3.0, 3.0, 3.0)))
    assert judgement.status is Status.UNDECIDABLE
    assert judge(keep_statistic(evidence, (4.0, 4.0, 4.0))).status is Status.FAIL


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
