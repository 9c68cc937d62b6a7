"""What a judgement says besides its findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from grouped_losses import mean_squares, sum_squares
from grouped_training import LAST, Simulator, by_first_share
from simulated_rule import Rule
from training_simulator import observe

from distbench.diagnose.judge import judge
from distbench.diagnose.readings.notes import note_not_finite
from distbench.diagnose.readings.unjudged import note_metrics
from distbench.evidence import Evidence
from distbench.trace import INITIAL, WHOLE, MetricInfo, Trace, TraceKey
from distbench.verdict import Status


def test_examples_that_no_replica_gets_are_told() -> None:
    evidence = Simulator(sum_squares).make_evidence()
    notes = {**evidence.reference.notes, "left_out": [2, 0, 1]}
    reference = replace(evidence.reference, notes=notes)
    judgement = judge(replace(evidence, reference=reference))
    assert "3 of 42 examples are left out" in judgement.message


@pytest.mark.parametrize(
    ("spoilt", "told"),
    [((), ""), ((1, 2), "step 1 on"), ((2,), "step 2 on"), ((1,), "")],
)
def test_it_is_told_from_when_on_one_device_trains_on_nan(spoilt, told) -> None:
    """Of what is finite again, as under a loss scale, all that follows is compared."""
    reference = Simulator(sum_squares).make_evidence().reference
    values = {
        key: np.full_like(value, np.nan)
        if key.phase == "variable" and key.step in spoilt
        else value
        for key, value in reference.values.items()
    }
    note = note_not_finite(replace(reference, values=values))
    assert told in note
    assert bool(told) == bool(note)


def test_what_is_wrong_with_a_last_batch_alone_is_told() -> None:
    """Each shard counts as it does in all other batches."""
    simulator = Simulator(mean_squares, by_first_share, last=LAST)
    judgement = judge(simulator.make_evidence())
    assert judgement.status is Status.FAIL
    first = judgement.findings[0]
    assert (first.code, first.phase, first.step) == ("scale-error", "loss", 2)
    assert "step 2 has 3 + 1 + 1 examples, in place of 6 + 4 + 3" in judgement.message


@pytest.mark.parametrize("is_wrong", [False, True])
def test_tensors_that_replicas_may_have_overwritten_are_told_where_something_is_wrong(
    is_wrong: bool,
) -> None:
    wrong = Simulator(mean_squares, by_first_share, last=LAST)
    evidence = (wrong if is_wrong else Simulator(sum_squares)).make_evidence()
    notes = {**evidence.observed.notes, "kept_tensors": ["outputs", "codes"]}
    observed = replace(evidence.observed, notes=notes)
    judgement = judge(replace(evidence, observed=observed))
    assert (judgement.status is Status.FAIL) == is_wrong
    told = "keeps tensors of its batch as 'outputs' (and 1 more)"
    assert (told in judgement.message) == is_wrong


def test_what_would_give_data_as_well_is_told() -> None:
    evidence = Simulator(sum_squares).make_evidence()
    notes = {**evidence.observed.notes, "unread_feeds": ["dataset_fn", "dataset"]}
    judgement = judge(
        replace(evidence, observed=replace(evidence.observed, notes=notes))
    )
    assert "has 'dataset_fn' (and 1 more) as well, which was not" in judgement.message


def put_probe(
    evidence: Evidence,
    name: str,
    *,
    step: int,
    replica: int,
    factor: float,
    of: str = "",
) -> Evidence:
    """Say what the update gives otherwise: in a step a slot times a factor."""
    values = {
        replace(key, replica=replica): value
        if key.phase != "slot" or key.step != step or of not in key.variable
        else np.asarray(value * np.float32(factor))
        for key, value in evidence.reference.select(replica=WHOLE)
        if key.phase in ("slot", "variable") and key.step >= 0
    }
    assert values
    probe = replace(evidence.reference, values=values)
    return replace(evidence, probes={**evidence.probes, name: probe})


@pytest.mark.parametrize(
    ("seen", "due", "noted"),
    [
        (0.7, 0.5, True),
        (0.5, 0.5, False),
        (np.nan, 0.5, True),
        (0.5, np.nan, True),
        (np.nan, np.nan, False),
    ],
)
def test_a_metric_that_shows_another_number_is_told(
    seen: float, due: float, noted: bool
) -> None:
    def make(number: float) -> Trace:
        key = TraceKey(step=0, phase="loss", variable="accuracy")
        return Trace(
            name="",
            replicas=2,
            shards=(1, 1),
            variables=(),
            values={key: np.array(number)},
            metrics=(MetricInfo(name="accuracy", state=()),),
        )

    evidence = Evidence(tier="bounded", reference=make(due), observed=make(seen))
    words = f"shows {seen:.6g} in step 0, one device {due:.6g}"
    told = words in note_metrics(evidence, ())
    assert told == noted


def show_numbers(seen: Mapping[int, float], due: Mapping[int, float]) -> Evidence:
    """What a metric shows after some steps, on the cluster and on one device."""

    def make(numbers: Mapping[int, float]) -> Trace:
        return Trace(
            name="",
            replicas=2,
            shards=(1, 1),
            variables=(),
            values={
                TraceKey(step=step, phase="loss", variable="accuracy"): np.array(number)
                for step, number in numbers.items()
            },
            metrics=(MetricInfo(name="accuracy", state=()),),
        )

    return Evidence(tier="bounded", reference=make(due), observed=make(seen))


@pytest.mark.parametrize(("seen", "noted"), [(0.5, False), (0.7, True)])
def test_a_metric_is_held_against_the_same_step(seen: float, noted: bool) -> None:
    """One of as many other steps was taken for it."""
    evidence = show_numbers({0: 0.1, 2: seen}, {2: 0.5, 3: 0.9})
    assert bool(note_metrics(evidence, ())) is noted


def test_a_metric_that_is_0_at_last_is_told_of_the_step_that_is_farthest_off() -> None:
    evidence = show_numbers({0: 0.33, 1: 0.25, 2: 0.0}, {0: 0.36, 1: 0.5, 2: 0.0})
    assert "shows 0.25 in step 1, one device 0.5" in note_metrics(evidence, ())


@pytest.mark.parametrize(
    ("factor", "noted"), [(1.0, False), (1.5, True), (np.nan, True)]
)
def test_a_rule_that_minds_repeated_rows_passes_with_a_note(
    factor: float, noted: bool
) -> None:
    evidence = observe(rule=Rule(name="momentum"))
    judgement = judge(put_probe(evidence, "distinct", step=0, replica=0, factor=factor))
    assert judgement.status is Status.PASS
    assert ("repeated rows" in judgement.message) == noted


@pytest.mark.parametrize(
    ("of", "words"),
    [
        ("embedding", "the rule of 'momentum/embedding/table'"),
        ("", "what is made of all gradients together"),
    ],
)
def test_what_minds_rows_where_gradients_are_dense_is_made_of_all(
    of: str, words: str
) -> None:
    evidence = observe(rule=Rule(name="momentum"))
    probed = put_probe(evidence, "distinct", step=0, replica=0, factor=1.5, of=of)
    assert words in judge(probed).message


@pytest.mark.parametrize(
    ("factor", "draws", "noted"),
    [
        (1.0, {}, False),
        (1.5, {}, True),
        # Whoever draws for each shard draws other numbers than for the whole.
        (1.5, {"noise.py:3": "subject"}, False),
    ],
)
def test_a_rule_that_minds_shards_passes_with_a_note(
    factor: float, draws: dict[str, str], noted: bool
) -> None:
    evidence = observe(rule=Rule(name="momentum"))
    notes = {**evidence.reference.notes, "draws": draws}
    evidence = replace(evidence, reference=replace(evidence.reference, notes=notes))
    judgement = judge(
        put_probe(evidence, "uncut", step=1, replica=WHOLE, factor=factor)
    )
    assert judgement.status is Status.PASS
    found = (
        "slot 'momentum/dense/kernel' comes out otherwise in step 1"
        in judgement.message
    )
    assert found == noted, judgement.message


def test_state_that_one_device_alone_moves_is_named() -> None:
    evidence = observe()
    reference = evidence.reference
    kept = {
        TraceKey(step=step, phase="slot", variable="average", replica=WHOLE): (
            np.full(2, step, np.float32)
        )
        for step in (INITIAL, 0, 1)
    }
    more = replace(reference, values={**reference.values, **kept})
    judgement = judge(replace(evidence, reference=more))
    assert judgement.status == "pass"
    assert "one device has 'average', and the cluster nothing" in judgement.message
