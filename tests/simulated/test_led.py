"""State of the model that examples lead: by all replicas, or by one of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from evidence_changes import change_evidence
from gradient_values import map_values
from led_runs import ADDED, ALL, BY_SIZE, EVEN, MOVING, F, list_led, make_run
from training_simulator import HEAD, Fault, observe
from verdict_samples import make_finding

from distbench.compare.comparison import compare_evidence
from distbench.diagnose.clues.context import Context
from distbench.diagnose.hypotheses.register import list_hypotheses, list_last
from distbench.diagnose.judge import judge
from distbench.diagnose.stages.led import leave_out_led
from distbench.evidence import Evidence
from distbench.trace import INITIAL, WHOLE, Trace, TraceKey
from distbench.verdict import Status


@pytest.mark.parametrize(("weights", "is_right"), [(BY_SIZE, True), (EVEN, False)])
def test_what_rounds_alone_is_the_whole_batchs(
    weights: tuple[float, ...], is_right: bool
) -> None:
    """Where only a narrower dtype is in the way, a mean of means is not the mean."""
    evidence = change_evidence(make_run(weights, known=False), lost=2.0**-6)
    led = list_led(evidence)
    assert len(led) == 6
    assert [c.wrong for c in led] == [not is_right] * 6


@pytest.mark.parametrize("weights", [BY_SIZE, EVEN], ids=["by-size", "even"])
def test_what_all_replicas_lead_is_right_where_one_device_does_not_tell(
    weights: tuple[float, ...],
) -> None:
    evidence = make_run(weights, known=False)
    led = list_led(evidence)
    assert len(led) == 6
    assert not any(c.wrong for c in led)
    assert all(c.effective for c in led)


@pytest.mark.first(3)
@pytest.mark.parametrize("replica", ALL)
@pytest.mark.parametrize("known", [True, False], ids=["known", "grouped"])
def test_what_one_replica_leads_is_wrong(replica: int, known: bool) -> None:
    weights = tuple(float(r == replica) for r in ALL)
    judgement = judge(make_run(weights, known=known))
    assert judgement.status is Status.FAIL
    (found,) = judgement.findings
    assert (found.code, found.phase) == ("statistics-not-synchronized", "variable")
    assert found.variables == ("moving",)
    assert f"replica {replica} alone" in found.explanation


@pytest.mark.parametrize("known", [True, False], ids=["known", "grouped"])
def test_what_each_replica_leads_for_itself_is_wrong(known: bool) -> None:
    """As where the first replica of each process counts."""
    evidence = make_run(BY_SIZE, known=known)
    values = dict(evidence.observed.values)
    for key in list(values):
        if key.variable == "moving" and key.step >= 0:
            values[key] = evidence.reference.values[key]
    observed = replace(evidence.observed, values=values)
    (found,) = judge(replace(evidence, observed=observed)).findings
    assert (found.code, found.phase) == ("statistics-not-synchronized", "variable")
    assert found.replicas == ALL
    assert "one replica alone" in found.explanation


def test_what_two_of_three_lead_is_wrong_where_shards_make_up_the_whole() -> None:
    """Whatever the loss is made of, and no replica leads it alone."""
    led = list_led(make_run((0.5, 0.5, 0.0), known=False))
    assert [c.wrong for c in led] == [True] * 6


@pytest.mark.parametrize(
    ("counts", "weights", "code"),
    [
        (True, ADDED, None),
        (True, EVEN, "mean-instead-of-sum"),
        (False, EVEN, None),
        (False, BY_SIZE, None),
        (False, ADDED, "statistics-not-synchronized"),
    ],
    ids=["sum", "sum-averaged", "mean", "mean-by-size", "mean-added-up"],
)
def test_a_double_tells_what_adds_up_where_the_loss_follows_the_grouping(
    counts: bool, weights: tuple[float, ...], code: str | None
) -> None:
    evidence = make_run(weights, known=False, counts=counts)
    assert any(c.wrong for c in list_led(evidence)) == (code is not None)
    codes = [f.code for f in judge(evidence).findings]
    assert codes == ([] if code is None else [code])


def test_a_replica_is_named_where_another_one_gives_the_same_in_some_step() -> None:
    """As of a few counts."""
    evidence = make_run((1.0, 0.0, 0.0), known=True)
    place = TraceKey(step=0, phase="variable", variable="moving", replica=0)
    values = dict(evidence.reference.values)
    values[replace(place, replica=1)] = values[place]
    reference = replace(evidence.reference, values=values)
    (found,) = judge(replace(evidence, reference=reference)).findings
    assert "what the examples of replica 0 alone give" in found.explanation


@pytest.mark.parametrize(
    ("times", "start", "code"),
    [
        (2.0, 1.0, "hyperparameter-differs"),
        (0.4, 1.0, "hyperparameter-differs"),
        (3.0, 1.0, "update-repeated"),
        (2.0, 0.0, "statistics-not-synchronized"),
    ],
    ids=["farther", "less-far", "as-often-as-replicas", "from-zero"],
)
def test_a_statistic_that_goes_another_part_of_its_way_is_synchronised(
    times: float, start: float, code: str
) -> None:
    """From 0 it may as well follow something that is so many times as large."""
    evidence = make_run(BY_SIZE, known=True)

    def move(trace: Trace, times: float = 1.0) -> Trace:
        values = {k: value for k, value in trace.values.items() if k.step <= 0}
        for key, value in values.items():
            if key.variable == "moving":
                change = np.asarray(value - np.float32(1))
                values[key] = np.float32(start) + np.float32(times) * change
        return replace(trace, values=values)

    moved = evidence.change_traces(move)
    moved = replace(moved, observed=move(evidence.observed, times))
    (found,) = judge(moved).findings
    assert (found.code, found.variables) == (code, ("moving",))
    assert found.ratio == pytest.approx(times, rel=1e-5)


def lift(evidence: Evidence) -> Evidence:
    """The same where the whole batch gives something else than its shards do."""

    def move(trace: Trace) -> Trace:
        values = dict(trace.values)
        for key, value in trace.select(variable="moving", replica=WHOLE):
            values[key] = np.asarray(value + np.float32(key.step >= 0))
        return replace(trace, values=values)

    twins = tuple(map(move, evidence.twins))
    return replace(evidence, reference=move(evidence.reference), twins=twins)


def test_what_two_of_three_lead_is_not_told_where_one_device_does_not_tell() -> None:
    assert list_led(lift(make_run((0.5, 0.5, 0.0), known=False))) == []


@pytest.mark.parametrize("step", [0, 1])
def test_one_step_in_which_a_shard_gives_the_same_is_chance(step: int) -> None:
    """As of a few signs or counts."""
    evidence = lift(make_run((0.5, 0.5, 0.0), known=False))
    place = TraceKey(step=step, phase="variable", variable="moving", replica=0)
    alone = evidence.reference.values[place]
    copies = {replace(place, replica=replica): alone for replica in ALL}
    values = {**evidence.observed.values, **copies}
    observed = replace(evidence.observed, values=values)
    assert list_led(replace(evidence, observed=observed)) == []


def test_a_copy_that_stands_still_while_others_move_goes_apart() -> None:
    evidence = make_run(BY_SIZE, known=True)
    values = dict(evidence.observed.values)
    for key in values:
        if key.variable == "moving" and key.replica == 1 and key.step >= 0:
            start = evidence.get_before(key.step, "variable", "moving")
            assert start is not None
            values[key] = start
    observed = replace(evidence.observed, values=values)
    (found,) = judge(replace(evidence, observed=observed)).findings
    assert (found.code, found.replicas) == ("replicas-diverged", (1,))


def test_a_wrong_loss_is_reported_beside_it() -> None:
    """The replica that leads has it as well: it is not made of the statistic."""
    fault = Fault(scale=lambda r, setup: setup.replicas)
    evidence = make_run((1.0, 0.0, 0.0), known=True, fault=fault)
    codes = [f.code for f in judge(evidence).findings]
    assert codes == ["loss-not-scaled", "statistics-not-synchronized"]


@pytest.mark.parametrize("follows", [True, False])
def test_what_one_device_makes_of_wrong_gradients_is_led_by_nobody(
    follows: bool,
) -> None:
    """As an average of the weights after the step."""
    fault = Fault(scale=lambda r, setup: setup.replicas)
    evidence = make_run((0.5, 0.5, 0.0), known=True, fault=fault)
    place = TraceKey(step=0, phase="variable", variable="moving", replica=0)
    held = evidence.observed if follows else evidence.reference
    made = {
        key: held.values[key]
        for key in (
            replace(place, step=step, replica=replica)
            for step in (0, 1)
            for replica in ALL
        )
    }
    replay = evidence.fed.replays["reduced_gradient"]
    replay = replace(replay, values={**replay.values, **made})
    replays = {**evidence.fed.replays, "reduced_gradient": replay}
    codes = [f.code for f in judge(change_evidence(evidence, replays=replays)).findings]
    own = [] if follows else ["statistics-not-synchronized"]
    assert codes == ["loss-not-scaled", *own]


def test_an_odd_loss_of_the_others_follows_from_it() -> None:
    """Replica 0 computes what its shard alone gives; the others have its statistic."""
    fault = Fault(scale=lambda r, setup: 1.0 if r == 0 else 1.5)
    evidence = make_run((1.0, 0.0, 0.0), known=False, fault=fault, shards_known=True)
    assert [f.code for f in judge(evidence).findings] == ["statistics-not-synchronized"]


@pytest.mark.parametrize("told", [True, False])
def test_nothing_follows_from_state_of_which_nothing_is_told(told: bool) -> None:
    """An average of weights may be wrong, as these are, and lead nothing."""
    evidence = make_run((0.5, 0.5, 0.0), known=True)
    broken = [
        judged for judged in compare_evidence(evidence) if judged.comparison.wrong
    ]
    open_one = make_finding(code="unexplained", variable=HEAD, variables=(HEAD,))
    of_state = make_finding(variable="moving", variables=("moving",))
    findings = [open_one, of_state] if told else [open_one]
    assert leave_out_led(evidence, broken, findings) == [of_state if told else open_one]


@pytest.mark.parametrize("led", [False, True])
def test_beside_a_led_statistic_a_factor_of_each_step_names_no_cause(led: bool) -> None:
    """What a statistic scales has such a factor whatever it is that leads it."""
    evidence = observe(Fault(scale=lambda r, setup: 1.5), replicas=3, steps=2)
    cases = tuple(
        judged.pair
        for judged in compare_evidence(evidence)
        if judged.pair is not None and judged.pair.key.phase == "local_gradient"
    )
    context = Context(evidence=evidence, phase="local_gradient", cases=cases, led=led)
    told = [
        found for found in list_hypotheses(context) if "step by step" in found.detail
    ]
    assert bool(told) is not led


@pytest.mark.parametrize("led", [False, True])
def test_nor_do_numbers_for_each_replica(led: bool) -> None:
    def weigh(locals_: list[Any], step: int) -> list[Any]:
        del step
        own = range(len(locals_))
        names = [n for n in locals_[0] if isinstance(locals_[0][n], np.ndarray)]
        sums = {n: sum(F(1 + r / 4) * locals_[r][n] for r in own) for n in names}
        return [{**locals_[0], **sums} for _ in own]

    evidence = observe(Fault(reduce=weigh), replicas=3, steps=2)
    cases = tuple(
        judged.pair
        for judged in compare_evidence(evidence)
        if judged.pair is not None
        and judged.pair.key.phase == "reduced_gradient"
        and judged.pair.rows is None
    )
    context = Context(evidence=evidence, phase="reduced_gradient", cases=cases, led=led)
    assert bool(list(list_last(context))) is not led


def follow(evidence: Evidence, count: int) -> Evidence:
    """The same with an average of the head, which moves so often before the loss."""
    head = {
        step: np.asarray(evidence.get_before(step, "variable", HEAD))
        for step in range(evidence.observed.steps)
    }
    start = np.ones_like(head[0])

    def move(trace: Trace, times: int, replicas: tuple[int, ...]) -> Trace:
        values: dict[TraceKey, Any] = dict(trace.values)
        moving, base = start, start
        for step in (INITIAL, *head):
            for _ in range(times if step != INITIAL else 0):
                moving = F(0.75) * moving + F(0.25) * head[step]
            for replica in replicas:
                key = TraceKey(
                    step=step, phase="variable", variable="moving", replica=replica
                )
                values[key] = moving
            # A step begins with what one device left.
            base = F(0.75) * base + F(0.25) * head[step] if step >= 0 else base
            moving = base
        info = replace(MOVING, shape=start.shape)
        return replace(trace, variables=(*trace.variables, info), values=values)

    everyone = (WHOLE, *ALL)
    return replace(
        evidence,
        reference=move(evidence.reference, 1, everyone),
        observed=move(evidence.observed, count, ALL),
        twins=tuple(move(twin, 1, (WHOLE,)) for twin in evidence.twins),
    )


def bend_loss(value: Any, replica: int) -> Any:
    return value * F(1.25 + 0.5 * replica)


def bend_gradients(gradients: Any, replica: int, step: int) -> Any:
    rng = np.random.default_rng((step, replica))
    return {
        k: map_values(v, lambda a: a * rng.normal(size=a.shape))
        for k, v in gradients.items()
    }


def test_what_is_made_of_an_average_that_moves_too_often_follows_from_it() -> None:
    """No example leads the average, so it does not follow from the loss."""
    fault = Fault(loss=bend_loss, local=bend_gradients)
    setup: dict[str, Any] = {"replicas": 3, "shards_known": False}
    evidence = observe(fault, steps=2, **setup)
    assert {f.code for f in judge(follow(evidence, 1)).findings} == {"unexplained"}
    (found,) = judge(follow(evidence, 3)).findings
    assert (found.code, found.phase) == ("update-repeated", "variable")
    assert found.variables == ("moving",)
    assert found.ratio == 3


def test_an_average_that_moves_once_passes() -> None:
    evidence = observe(replicas=3, steps=2, shards_known=False)
    assert judge(follow(evidence, 1)).status is Status.PASS


@pytest.mark.parametrize("is_read", [True, False], ids=["read-first", "used"])
def test_own_copies_are_led_where_the_first_is_what_is_read(is_read: bool) -> None:
    """What a step makes something of is an accumulator, and each copy counts."""
    evidence = make_run(BY_SIZE, known=True)
    values = dict(evidence.observed.values)
    for key in list(values):
        if key.variable == "moving" and key.step >= 0:
            values[key] = evidence.reference.values[key]
    observed = replace(
        evidence.observed,
        values=values,
        variables=tuple(
            info
            if info.path != "moving"
            else replace(info, synchronised=False, takes_first=True, is_carried=is_read)
            for info in evidence.observed.variables
        ),
    )
    judgement = judge(replace(evidence, observed=observed))
    told = [(f.code, f.variables, f.replicas) for f in judgement.findings]
    due = [("statistics-not-synchronized", ("moving",), (0,))]
    assert told == (due if is_read else [])


@pytest.mark.parametrize(("off", "is_right"), [(2e-5, True), (2e-3, False)])
def test_what_shards_and_the_whole_are_apart_by_is_rounding_if_it_is_little(
    off: float, is_right: bool
) -> None:
    """As of what is added and taken away again, which no twin shows."""
    evidence = make_run(BY_SIZE, known=True)

    def move(trace: Trace, replicas: tuple[int, ...]) -> Trace:
        values = dict(trace.values)
        for key, value in trace.values.items():
            if key.variable == "moving" and key.step >= 0 and key.replica in replicas:
                values[key] = np.asarray(value * np.float32(1 + off))
        return replace(trace, values=values)

    moved = replace(
        evidence,
        observed=move(evidence.observed, ALL),
        reference=move(evidence.reference, ALL),
    )
    assert judge(evidence).status is Status.PASS
    assert (judge(moved).status is Status.PASS) is is_right
