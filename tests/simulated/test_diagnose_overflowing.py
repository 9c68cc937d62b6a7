"""Steps in which the shares of replicas overflow, or the whole batch, and not both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gradient_values import to_array
from overflowing_runs import (
    ALONE,
    STEP,
    Overflow,
    change_seen,
    change_trace,
    double,
    is_early,
    is_kernel,
    make_run,
    overflow_on_one_device,
    skip,
)
from training_simulator import HEAD, KERNEL

from distbench.diagnose.judge import judge
from distbench.diagnose.readings.overflowing import (
    leave_parted,
    list_parted,
    part_steps,
)
from distbench.fed import Fed
from distbench.trace import COMPUTED, GRADIENTS, WHOLE, TraceKey
from distbench.verdict import Status


@pytest.mark.parametrize("seen", [{1: (0,)}, ALONE])
def test_a_step_that_an_overflowing_share_leaves_out_is_not_compared(
    seen: Overflow,
) -> None:
    """Of fewer elements than the shard's own mean, and of the same ones."""
    judgement = judge(skip(seen))
    assert judgement.status is Status.PASS, judgement.findings
    assert f"in step {STEP} either" in judgement.message


@pytest.mark.parametrize("seen", [{1: (2,)}, {0: (1,)}])
def test_one_that_overflows_where_its_shard_does_not_is(
    seen: Overflow,
) -> None:
    judgement = judge(skip(seen))
    assert judgement.status is Status.FAIL
    assert judgement.findings[0].step == STEP


def test_who_leaves_nothing_out_on_one_device_has_to_step_on() -> None:
    """As where it is asked, and as it was given what the replicas have."""
    evidence = skip({1: (0,)})
    asked = replace(evidence, fed=Fed())
    left = replace(evidence.subject, guards=False)
    assert list_parted(asked) == list_parted(replace(evidence, subject=left)) == {STEP}
    assert not list_parted(replace(asked, subject=left))


def test_a_replica_without_examples_has_nothing_that_overflows() -> None:
    """What it divides by 0 spoils its shard alone as well."""
    evidence = skip({1: (0,)})
    resized = {STEP: (sum(evidence.reference.shards), 0)}
    reference = replace(evidence.reference, resized=resized)
    assert not list_parted(replace(evidence, reference=reference))


def test_copies_have_to_be_equal_all_the_same() -> None:
    """One replica leaves the step out, and the other one takes it."""

    def go_on(key: TraceKey, value: Any) -> Any:
        return value * np.float32(1.5) if is_kernel(key, "variable", 1) else value

    judgement = change_seen(skip({0: (0,)}), go_on)
    assert judgement.status is Status.FAIL
    assert KERNEL in judgement.findings[0].variables


def test_nothing_may_be_handed_on_for_what_overflows() -> None:
    """The sum of the other replicas' gradients."""
    evidence = skip({0: (0,)})
    own = {
        key.variable: value
        for key, value in evidence.observed.select(
            step=STEP, phase="local_gradient", replica=1
        )
    }

    def hand_on(key: TraceKey, value: Any) -> Any:
        return own[key.variable] if key.phase == "reduced_gradient" else value

    judgement = change_seen(evidence, hand_on)
    first = judgement.findings[0]
    assert (first.code, first.phase) == ("nonfinite", "reduced_gradient")


def test_a_mistake_in_another_step_is_told() -> None:
    def enlarge(key: TraceKey, value: Any) -> Any:
        return value * np.float32(1.5) if is_kernel(key, "variable") else value

    (found,) = change_seen(skip({1: (0,)}), enlarge, STEP + 1).findings
    assert (found.step, found.variables) == (STEP + 1, (KERNEL,))


@pytest.mark.parametrize("is_fed", [True, False])
def test_a_step_that_one_device_leaves_out_is_not_compared(is_fed: bool) -> None:
    evidence = overflow_on_one_device(is_fed=is_fed)
    assert list_parted(evidence) == {STEP}
    judgement = judge(evidence)
    assert judgement.status is Status.PASS, judgement.findings
    assert f"in step {STEP} either" in judgement.message


def test_its_sums_have_to_be_those_of_the_replicas() -> None:
    def halve(key: TraceKey, value: Any) -> Any:
        return value / np.float32(2) if is_kernel(key, "reduced_gradient") else value

    first = change_seen(overflow_on_one_device(), halve).findings[0]
    assert (first.code, first.step) == ("mean-instead-of-sum", STEP)


def test_own_gradients_are_those_of_one_device_all_the_same() -> None:
    """They were there before anything overflowed; what follows from them is right."""

    def enlarge(key: TraceKey, value: Any) -> Any:
        is_gradient = key.phase in GRADIENTS and key.variable == HEAD
        return double(value) if is_gradient else value

    first = change_seen(overflow_on_one_device(), enlarge).findings[0]
    assert (first.step, first.phase) == (STEP, "local_gradient")
    assert first.variables == (HEAD,)


def test_but_those_that_an_update_of_the_step_has_led() -> None:
    """One device has others where it makes the replicas' updates."""
    evidence = overflow_on_one_device()
    values = evidence.observed.values
    start = {key: value for key, value in values.items() if key.phase in COMPUTED}
    given = evidence.fed.replays["reduced_gradient"]

    def lead(key: TraceKey, value: Any) -> Any:
        return double(value) if key.variable == HEAD else value

    led = replace(given, values={**given.values, **start})
    replays = {
        **evidence.fed.replays,
        "reduced_gradient": change_trace(led, lead, STEP),
    }
    led_evidence = replace(evidence, fed=replace(evidence.fed, replays=replays))
    begun = {key.variable for key in part_steps(led_evidence).measure.begun}
    assert HEAD not in begun


def test_a_step_that_is_left_out_may_go_on_by_what_is_kept() -> None:
    """A momentum or a decay moves what trains, whatever becomes of gradients."""
    evidence = overflow_on_one_device()

    def decay(key: TraceKey, value: Any) -> Any:
        is_moved = is_kernel(key, "variable", WHOLE)
        return value * np.float32(0.9) if is_moved else value

    decayed = replace(evidence, reference=change_trace(evidence.reference, decay))
    assert list_parted(decayed) == {STEP}


@pytest.mark.parametrize("status", [Status.UNDECIDABLE, Status.VACUOUS])
def test_another_reason_stays(status: Status) -> None:
    evidence = part_steps(overflow_on_one_device())
    judgement = replace(judge(make_run()), status=status, message="why")
    left = leave_parted(evidence, judgement)
    assert (left.status, left.message) == (status, "why")


def test_nothing_proves_anything_where_all_steps_part() -> None:
    evidence = part_steps(overflow_on_one_device())
    every = frozenset(range(evidence.reference.steps))
    parted = replace(evidence, measure=replace(evidence.measure, parted=every))
    judgement = replace(judge(make_run()), status=Status.VACUOUS, message="why")
    left = leave_parted(parted, judgement)
    assert left.status is Status.UNDECIDABLE
    assert "leaves no step" in left.message


def test_an_infinite_sum_of_finite_gradients_is_not_to_be_stepped_along() -> None:
    """Whatever one device makes of that sum."""

    def overflow(key: TraceKey, value: Any) -> Any:
        return value if is_early(key) else np.full_like(to_array(value), np.inf)

    evidence = overflow_on_one_device()
    fed = evidence.fed.change_traces(lambda trace: change_trace(trace, overflow))
    first = change_seen(replace(evidence, fed=fed), overflow).findings[0]
    assert (first.code, first.phase) == ("nonfinite", "reduced_gradient")


def test_infinite_state_is_wrong_though_it_follows_from_what_was_seen() -> None:
    """Where one device is no measure of gradients, and comes to Inf with the sums."""

    def overflow(key: TraceKey, value: Any) -> Any:
        return value if is_early(key) else np.full_like(to_array(value), np.inf)

    evidence = make_run()
    fed = evidence.fed.change_traces(lambda trace: change_trace(trace, overflow))
    measure = replace(evidence.measure, known=COMPUTED)
    judgement = change_seen(replace(evidence, fed=fed, measure=measure), overflow)
    assert judgement.status is Status.FAIL
    assert judgement.findings[0].code == "nonfinite"


@pytest.mark.parametrize("part", [overflow_on_one_device, None])
def test_a_free_run_is_judged_until_each_goes_its_own_way(part: Any) -> None:
    """What replicas hold from there on is something else, and right."""
    evidence = part("free") if part else skip({1: (0,)}, make_run("free"))
    assert list_parted(evidence) == set(range(STEP, STEP + 2))

    def go_on(key: TraceKey, value: Any) -> Any:
        return value * np.float32(1.5) if key.phase == "variable" else value

    judgement = change_seen(evidence, go_on, STEP + 1)
    assert judgement.status is Status.UNDECIDABLE, judgement.findings
    assert f"in step {STEP} either" in judgement.message
    judgement = change_seen(evidence, go_on, STEP - 1)
    assert judgement.status is Status.FAIL
    assert judgement.findings[0].step == STEP - 1
