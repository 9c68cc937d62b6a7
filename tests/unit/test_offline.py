"""Two recorded runs: what counts as rounding, and where they first differ."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from recorded_runs import add, average, keep_own, train

from distbench.compare.arrays.likeness import Before, measure_likeness
from distbench.compare.recorded.offline import compare_traces, find_drift
from distbench.compare.recorded.reductions import describe_first, describe_reduction
from distbench.errors import BadInputError
from distbench.trace import (
    DIGESTS,
    INITIAL,
    WHOLE,
    Selection,
    SparseRows,
    Trace,
    TraceKey,
    Value,
    VariableInfo,
)
from distbench.trace.dtypes import find_dtype


def test_a_run_is_equal_to_itself() -> None:
    comparison = compare_traces(train(2), train(2))
    assert comparison.first is None
    assert comparison.count("equal") == len(comparison.places) > 30


@pytest.mark.parametrize("replicas", [2, 4])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_replicas_are_alike_to_one_device_but_for_rounding(
    replicas: int, sparse: bool
) -> None:
    comparison = compare_traces(train(replicas, sparse=sparse), train(1))
    assert comparison.first is None
    # How many depends on how this machine's products are added up.
    assert comparison.count("near") > 0
    phases = {(place.key.phase, place.how) for place in comparison.places}
    assert ("local_gradient", "sum") in phases
    assert ("slot", "sum") in phases
    assert ("variable", "") in phases


def test_runs_of_two_and_four_replicas_are_alike() -> None:
    assert compare_traces(train(2), train(4)).first is None


def cut(trace: Trace, cuts: tuple[int, ...]) -> Trace:
    """The same run with the kernel and its slot in shards that end at these rows."""
    whole = {v.path: v for v in trace.variables if v.shape == (3,)}
    bounds = [*zip((0, *cuts), (*cuts, 3), strict=True)]

    def name(path: str, part: int) -> str:
        return path.replace("dense/kernel", f"dense/kernel/part_{part}")

    infos = [v for v in trace.variables if v.path not in whole]
    for info in whole.values():
        for part, (low, high) in enumerate(bounds):
            path, owner = name(info.path, part), name(info.of, part)
            infos.append(replace(info, path=path, of=owner, shape=(high - low,)))
    values = {}
    for key, value in trace.values.items():
        if key.variable not in whole:
            values[key] = value
            continue
        for part, (low, high) in enumerate(bounds):
            piece = value
            if isinstance(value, SparseRows):
                here = (value.indices >= low) & (value.indices < high)
                piece = SparseRows(
                    indices=value.indices[here] - low,
                    values=value.values[here],
                    shape=(high - low,),
                )
            else:
                piece = value[low:high]
            values[replace(key, variable=name(key.variable, part))] = piece
    return replace(trace, variables=tuple(infos), values=values)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_shards_are_put_together_for_a_run_that_has_others(sparse: bool) -> None:
    whole = train(1, sparse=sparse)
    shards = cut(whole, (2,))
    assert len(shards.variables) == len(whole.variables) + 2
    for left, right in ((shards, whole), (whole, shards), (shards, cut(whole, (1, 2)))):
        comparison = compare_traces(left, right)
        assert comparison.first is None
        names = {place.key.variable for place in comparison.places}
        assert names == {"", *(v.path for v in whole.variables)}
    wrong = cut(train(1, sparse=sparse, reduce=lambda all_, r: 2 * add(all_, r)), (2,))
    first = compare_traces(wrong, whole).first
    assert first is not None
    assert first.key.variable == "dense/kernel"
    # Runs that cut alike are told by shards.
    alike = compare_traces(shards, shards).places
    assert any(place.key.variable.endswith("part_1") for place in alike)


@pytest.mark.parametrize(
    ("reduce", "ratio", "words"),
    [
        (average, 0.5, "the mean of what the replicas computed"),
        (keep_own, None, "what the replica computed by itself, not reduced"),
        (
            lambda local, replica: 2 * add(local, replica),
            2.0,
            "N times the sum of what the replicas computed",
        ),
        (
            lambda local, replica: np.float32(0.75) * add(local, replica),
            0.75,
            "0.75 times the sum of what the replicas computed",
        ),
        (
            lambda local, replica: np.clip(add(local, replica), -0.5, 0.5),
            None,
            "none of sum, mean and own of what the replicas computed",
        ),
    ],
    ids=["mean", "own", "twice", "factor", "clip"],
)
def test_a_wrong_reduction_is_found_and_named(reduce, ratio, words) -> None:
    wrong, one = train(2, reduce=reduce), train(1)
    first = compare_traces(wrong, one).first
    assert first is not None
    assert (first.key.step, first.key.phase) == (0, "reduced_gradient")
    if ratio is not None:
        assert first.likeness.ratio == pytest.approx(ratio, rel=1e-5)
    assert describe_reduction(wrong, first.key) == words
    assert describe_reduction(one, first.key) is None
    right = describe_reduction(train(2), first.key)
    assert right == "the sum of what the replicas computed"


@pytest.mark.parametrize(
    ("slices", "words"),
    [(20, "-2.56667 times the sum of what the replicas computed"), (140, None)],
)
def test_a_sum_that_may_be_anything_is_not_guessed(slices, words) -> None:
    """Of 2 x 140 slices bfloat16 may lose all of a row."""
    dtype = find_dtype("bfloat16")

    def make(number: float, count: int) -> SparseRows:
        values = np.full((count, 2), number, dtype)
        return SparseRows(
            indices=np.zeros(count, np.int64), values=values, shape=(3, 2)
        )

    key = TraceKey(step=0, phase="reduced_gradient", variable="table", replica=0)
    local = replace(key, phase="local_gradient")
    values = {
        local: make(1.0, slices),
        replace(local, replica=1): make(0.5, slices),
        key: make(-77.0, 1),
    }
    trace = Trace(name="a", replicas=2, shards=(1, 1), variables=(), values=values)
    assert describe_reduction(trace, key) == words


def test_a_small_step_on_large_weights_is_judged_by_what_it_changed() -> None:
    """A rate that is wrong by a tenth moves weights by less than half their digits."""
    first = compare_traces(train(2, rate=1.1e-6), train(2, rate=1e-6)).first
    assert first is not None
    assert first.key.phase == "variable"
    assert first.likeness.relative < 2**-12
    assert first.likeness.ratio == pytest.approx(1.1, rel=0.05)


def test_what_the_outcome_undoes_is_no_difference() -> None:
    """Each loss is twice its share; the mean of the gradients is half of the sum."""
    local = train(2, reduce=average, loss_scale=2.0)
    comparison = compare_traces(local, train(1))
    assert comparison.first is None
    undone = [place for place in comparison.places if place.undone]
    assert {place.key.phase for place in undone} == {"local_gradient"}
    assert undone[0].likeness.ratio == pytest.approx(2)
    # Asked for the gradients alone, there is no outcome that would excuse them.
    asked = Selection(phase="local_gradient")
    assert compare_traces(local, train(1), asked).first is not None


def test_a_loss_that_is_reported_counts_by_itself() -> None:
    def report(trace: Trace, loss: float) -> Trace:
        key = TraceKey(step=0, phase="loss", variable="shown")
        return replace(trace, values={**trace.values, key: np.asarray(loss)})

    first = compare_traces(report(train(2), 2.0), report(train(1), 1.0)).first
    assert first is not None
    assert first.key.variable == "shown"
    assert compare_traces(report(train(2), 2.0), train(1)).first is None


def test_replicas_that_drift_apart_are_named() -> None:
    drifting = compare_traces(train(2, reduce=keep_own), train(2)).drifting
    assert set(drifting) == {"A"}
    assert drifting["A"].step == 0
    # What each replica has for itself is meant to differ.
    local = train(2)
    key = TraceKey(step=1, phase="slot", variable="seen", replica=1)
    changed = replace(local, values={**local.values, key: np.float32(9)})
    assert find_drift(changed) is None


def take_sign(gradient: list[float]) -> Trace:
    """One step of a rule that takes the sign of its gradient alone."""
    info = VariableInfo(path="w", role="variable", shape=(2,), dtype="float32")
    start = np.ones(2, np.float32)
    given = np.array(gradient, np.float32)
    values = {
        TraceKey(step=INITIAL, phase="variable", variable="w", replica=0): start,
        TraceKey(step=0, phase="reduced_gradient", variable="w", replica=0): given,
        TraceKey(step=0, phase="variable", variable="w", replica=0): start
        - np.float32(0.25) * np.sign(given),
    }
    return Trace(name="t", replicas=1, shards=(), variables=(info,), values=values)


@pytest.mark.parametrize(("size", "alike"), [(1e-9, True), (1e-3, False)])
def test_rounding_that_a_rule_makes_steps_of_is_left_out(
    size: float, alike: bool
) -> None:
    comparison = compare_traces(take_sign([1, size]), take_sign([1, -size]))
    last = comparison.places[-1]
    assert last.key.phase == "variable"
    assert (comparison.first is None, last.status == "near") == (alike, alike)
    assert last.likeness.undecided == int(alike)


def test_another_start_is_the_first_difference() -> None:
    a = train(1)
    moved = {
        key: value + 1 if key.phase == "variable" else value
        for key, value in a.values.items()
    }
    first = compare_traces(replace(a, values=moved), train(1)).first
    assert first is not None
    assert (first.key.step, first.key.phase) == (INITIAL, "variable")


def test_a_value_that_one_run_lacks_is_missing() -> None:
    whole = train(2)
    values = {
        key: value
        for key, value in whole.values.items()
        if (key.step, key.phase) != (1, "variable")
    }
    first = compare_traces(replace(whole, values=values), whole).first
    assert first is not None
    assert (first.status, first.lacks) == ("missing", "A")


def test_steps_of_one_run_alone_are_left_out() -> None:
    comparison = compare_traces(train(2, steps=3), train(2, steps=1))
    assert comparison.left_out == (1, 2)
    assert comparison.first is None


def test_a_model_of_another_name_is_paired() -> None:
    comparison = compare_traces(train(2, layer="dense_3"), train(1))
    assert comparison.first is None
    assert comparison.renamed == {
        "dense_3/kernel": "dense/kernel",
        "SGD/dense_3/kernel/m": "SGD/dense/kernel/m",
    }


def test_a_reference_of_the_bench_is_held_against_every_replica() -> None:
    values = {key.at(WHOLE): value for key, value in train(1).values.items()}
    whole = replace(train(1), replicas=2, values=values)
    assert compare_traces(train(2), whole).first is None
    assert compare_traces(train(2, reduce=average), whole).first is not None


def test_half_precision_is_alike_in_half_of_its_own_digits() -> None:
    a = np.array([1.0, 2.0])
    b = a * (1 + 2.0**-7)
    wide = measure_likeness(a, b, "float32", half=2.0**-12)
    narrow = measure_likeness(a, b, "float32", half=2.0**-5.5)
    assert (wide.status, narrow.status) == ("different", "near")


def test_a_gradient_that_is_nothing_but_rounding_is_told_apart() -> None:
    a, b = np.array([2e-9, 0.0]), np.array([-1e-9, 1e-9])
    rest = measure_likeness(a, b, "float32", half=2.0**-12, floor=1e-7)
    assert (rest.status, rest.is_noise) == ("near", True)
    assert measure_likeness(a, b, "float32", half=2.0**-12).status == "different"
    near = measure_likeness(b * 8, b * (8 + 1e-6), "float32", half=2.0**-12, floor=1e-7)
    assert (near.status, near.is_noise) == ("near", False)


def test_state_that_only_roundings_were_added_to_is_alike_whatever_it_holds() -> None:
    """A bias in front of a batch normalisation, which momentum carries on."""
    infos = tuple(
        VariableInfo(path=path, role="variable", shape=(2,), dtype="float32")
        for path in ("bias", "kernel")
    )

    def make(noise: list[float], later: list[float], state: float) -> Trace:
        # Elements that are the same by chance are noise as well.
        values: dict[TraceKey, Value] = {}
        for step, bias in enumerate((noise, later)):
            for phase, path, value in (
                ("reduced_gradient", "bias", bias),
                ("reduced_gradient", "kernel", [1.0, -2.0]),
                ("variable", "bias", [0.0, step * state]),
                ("variable", "kernel", [3.0 - step, 1.0]),
            ):
                key = TraceKey(step=step, phase=phase, variable=path, replica=0)
                values[key] = np.array(value, np.float32)
        return Trace(
            name="run", replicas=1, shards=(4,), variables=infos, values=values
        )

    a = make([1e-8, 2e-8], [1e-8, 2e-8], 3e-9)
    b = make([-1e-8, 2e-8], [1e-8, 2e-8], -4e-9)
    assert compare_traces(a, b).first is None
    real = make([0.1, 0.2], [0.1, 0.2], 3e-9), make([0.1, 0.2], [0.1, 0.2], -4e-9)
    assert compare_traces(*real).first is not None


def test_errors_are_counted_in_units_of_the_largest_element() -> None:
    a = np.array([1.5 + 3 * 2.0**-23, 2.0**-20])
    likeness = measure_likeness(a, np.array([1.5, 0.0]), "float32", half=2.0**-12)
    assert likeness.ulps == 8
    assert likeness.relative == pytest.approx(2.0**-20 / 1.5)


def test_what_was_apart_before_is_no_news() -> None:
    a, b = np.array([1.0 + 1e-5]), np.array([1.0])
    before = Before(observed=a - 1e-9, expected=b - 1e-9, was_near=True)
    kept = measure_likeness(a, b, "float32", half=2.0**-12, before=before)
    assert kept.status == "near"
    news = replace(before, observed=b - 1e-9)
    made = measure_likeness(a, b, "float32", half=2.0**-12, before=news)
    assert made.status == "different"


def test_not_finite_values_agree_with_themselves_alone() -> None:
    a = np.array([np.nan, np.inf, 1.0])
    assert measure_likeness(a, a, "float32", half=2.0**-12).status == "equal"
    b = np.array([np.nan, np.inf, np.nan])
    assert measure_likeness(a, b, "float32", half=2.0**-12).status == "different"


def digest(trace: Trace) -> Trace:
    """The same with digests in the place of all values but losses."""
    values = {
        key: value
        if key.phase == "loss"
        else np.frombuffer(
            hashlib.blake2b(np.asarray(value).tobytes(), digest_size=8).digest(),
            np.uint8,
        )
        for key, value in trace.values.items()
    }
    return replace(trace, values=values, notes={**trace.notes, DIGESTS: True})


def test_digests_differ_where_the_first_bit_does() -> None:
    right, wrong = digest(train(2)), digest(train(2, reduce=average))
    same = compare_traces(right, digest(train(2)))
    assert same.first is None
    assert {place.status for place in same.places} == {"equal"}
    comparison = compare_traces(wrong, right)
    first = comparison.first
    assert first is not None
    assert (first.key.step, first.key.phase) == (0, "reduced_gradient")
    # A rounding is a difference of bits, and how large it is nobody knows.
    states = [p.status for p in comparison.places if p.key.phase != "loss"]
    assert set(states) == {"equal", "different"}
    assert np.isnan(first.likeness.error)
    assert describe_first(wrong, right, comparison) == []


def test_replicas_that_drift_apart_are_named_by_their_digests() -> None:
    drifting = compare_traces(digest(train(2, reduce=keep_own)), digest(train(2)))
    assert set(drifting.drifting) == {"A"}


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (train(2), "digests of 2 replicas and numbers of 2 replicas"),
        (digest(train(1)), "digests of 2 replicas and digests of 1 replica"),
    ],
    ids=["numbers", "other-replicas"],
)
def test_digests_are_held_against_their_like(other: Trace, words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        compare_traces(digest(train(2)), other)


def hold(values: list[int], dtype: str = "float32", **settings: bool) -> Trace:
    """A run of so many replicas, each of which holds a number from the start on."""
    info = VariableInfo(
        path="own", role="variable", shape=(), dtype=dtype, trainable=False, **settings
    )
    held = {
        TraceKey(step=step, phase="variable", variable="own", replica=r): np.array(
            value, dtype
        )
        for step in (INITIAL, 0)
        for r, value in enumerate(values)
    }
    count = len(values)
    return Trace(
        name="t", replicas=count, shards=(1,) * count, variables=(info,), values=held
    )


@pytest.mark.parametrize(("last", "status"), [(0, "equal"), (3, "different")])
def test_large_integers_are_not_rounded(last: int, status: str) -> None:
    runs = hold([2**60], "int64"), hold([2**60 + last], "int64")
    places = compare_traces(*runs).places
    assert {place.status for place in places} == {status}
    assert {place.likeness.error for place in places if place.likeness} == {last}


def test_large_integers_of_replicas_drift() -> None:
    assert find_drift(hold([2**60, 2**60], "int64")) is None
    assert find_drift(hold([2**60, 2**60 + 1], "int64")) is not None


@pytest.mark.parametrize(("first", "status"), [(1, "equal"), (2, "different")])
@pytest.mark.parametrize("others", [(5,), (9, 9, 9)])
def test_of_what_stands_for_all_the_first_copy_is_compared(
    first: int, status: str, others: tuple[int, ...]
) -> None:
    """Under ONLY_FIRST_REPLICA nobody reads what the other replicas hold."""
    settings = {"synchronised": False, "takes_first": True}
    runs = hold([1, 5, 5], **settings), hold([first, *others], **settings)
    found = compare_traces(*runs).places
    assert {(place.key.replica, place.status) for place in found} == {(0, status)}
