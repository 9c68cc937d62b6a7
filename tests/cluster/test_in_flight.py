"""Steps in flight on real parameter servers: what is lost, extra, or as it should be.

The planted races are certain: each worker writes long after it has read, and as two of
them take steps without a pause, one is always about to write what another has replaced.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import distbench
from distbench.errors import BadInputError
from distbench.selftest.matrix import mark_cell
from distbench.selftest.run import plan_selftest, run_selftest
from distbench.verdict import Run, Status, describe_verdict

pytestmark = pytest.mark.cluster
LONG = pytest.mark.nightly
SUBJECTS = Path(__file__).with_name("subjects.py")
ODD = Path(__file__).with_name("odd_programs.py")
SERVED = Path(__file__).with_name("served_programs.py")


def time_steps(count: int):
    """In the chief: the clock of each step, and the tally before and after its call."""
    import os
    from types import SimpleNamespace

    import numpy as np
    import tensorflow as tf

    from distbench.samples.servers import linger
    from distbench.worker.state.variables import VariableTable
    from distbench.worker.stepping.steps import StepsInFlight

    if '"type": "chief"' not in os.environ["TF_CONFIG"]:
        return None
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    with strategy.scope():
        tally = tf.Variable(np.zeros(count, np.float32))
    seen = {}

    def read():
        with tf.device("/job:chief/replica:0/task:0/device:CPU:0"):
            return tally.read_value().numpy().tolist()

    def add(place):
        # Nothing that is returned waits for what is written last.
        tally.assign_add(linger(place))
        return tf.constant(0.0)

    class Watched(StepsInFlight):
        def _take(self, take_step, step, timed, batch):
            def look(batch):
                before = read()
                loss = take_step(batch)
                seen[step] = before, read()
                return loss

            return super()._take(look, step, timed, batch)

    session = SimpleNamespace(
        strategy=strategy,
        table=VariableTable(()),
        varies=False,
        alone=False,
        distribute=lambda shards: tf.constant(shards[0]),
    )
    times = Watched(session, add).run(list(np.eye(count, dtype=np.float32)))
    return [(t.tries, t.begun, t.ended, *seen[step]) for step, t in enumerate(times)]


def pack_state():
    """On one device: what is read of many variables, before and after they are set."""
    import numpy as np
    import tensorflow as tf

    from distbench.worker.in_flight.packed import PackedState
    from distbench.worker.state.variables import VariableTable, list_state
    from distbench.worker.taps.collect import read_state

    rng = np.random.default_rng(0)
    shapes = [(), (3,), (2, 0), (2, 2)]
    dtypes = [tf.float32, tf.bfloat16, tf.int64, tf.bool]
    variables = [
        tf.Variable(tf.cast(rng.integers(0, 2, shape), dtype), name=f"v{number}")
        for number, (shape, dtype) in enumerate(
            (shape, dtype) for _ in range(2) for shape in shapes for dtype in dtypes
        )
    ]
    variables.append(tf.Variable([1.0], shape=[None], name="any_size"))
    table = VariableTable(list_state(variables, [], (), lambda _: None))
    packed = PackedState(table)
    first = packed.read()
    changed = {
        key: np.logical_not(value).astype(value.dtype) for key, value in first.items()
    }
    kept = {key: value.copy() for key, value in first.items()}
    packed.write(changed)
    # What was read stays as it is, and no element is another variable's.
    found = [
        all(np.array_equal(left[key], right[key]) for key in right)
        and [(v.dtype, v.shape) for v in left.values()]
        == [(v.dtype, v.shape) for v in right.values()]
        for left, right in (
            (first, kept),
            (packed.read(), changed),
            (read_state(table), changed),
        )
    ]
    return len(variables), list(first) == list(read_state(table)), found


def hold_tables():
    """On one device: what tables hold when emptied, when put back, and added to."""
    import tensorflow as tf

    from distbench.worker.state.lookup import add_to_table, read_table, write_table

    kinds = tf.lookup.experimental
    strings = kinds.MutableHashTable(tf.string, tf.float32, 0.0)
    dense = kinds.DenseHashTable(
        tf.int64, tf.float32, [0.0, 0.0], empty_key=-1, deleted_key=-2
    )
    found = []
    for table, keys, values in (
        (strings, [b"a\0", b"a"], [1.0, 2.0]),
        (dense, [3, 1], [[1.0, 2.0], [3.0, 4.0]]),
    ):
        empty = read_table(table)
        table.insert(keys, values)
        full = read_table(table)
        write_table(table, empty)
        emptied = read_table(table).tolist()
        write_table(table, full)
        back = read_table(table).tobytes() == full.tobytes()
        # A step that found it empty has inserted one key, and so did others.
        some = full[full["key"] == (b"a." if table is strings else 3)]
        added = add_to_table(full, some, empty)
        pairs = zip(added["key"].tolist(), added["value"].tolist(), strict=True)
        found.append((emptied, back, list(pairs)))
    return found


def _fly(name: str, cluster: str, **options) -> Run:
    verdict = distbench.check(f"{SUBJECTS}:{name}", cluster, **options)
    [run] = verdict.runs
    assert run.status is Status.PASS, describe_verdict(verdict)
    return run


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("read-then-assigned", marks=LONG),
        pytest.param("slot-read-back", marks=LONG),
        pytest.param("average-assigned-and-checked", marks=LONG),
        "applied-again",
        "counted-by-each-worker",
    ],
)
def test_a_fault_of_steps_in_flight_is_found_and_named(name: str) -> None:
    (cell,) = run_selftest(plan_selftest([name], ["ps:2+1"])).faults
    assert mark_cell(cell) == "ok", (cell.found, cell.explanation)


@pytest.mark.parametrize("name", ["slow-in-place", "program-in-flight"])
def test_correct_steps_in_flight_pass(name: str) -> None:
    (passed,) = run_selftest(plan_selftest([name], ["ps:2+1"])).unusual
    assert passed.status is Status.PASS, passed.found


@LONG
def test_a_race_of_the_stock_rule_shows_for_certain_and_is_the_frameworks() -> None:
    """tf_keras' plain descent reads back a slot, into which others write meanwhile."""
    target = f"{SUBJECTS}:make_keras2_sgd"
    found = distbench.check(target, "ps:2+1", in_flight=8).findings
    assert [(f.code, f.phase, f.origin) for f in found] == [
        ("lost-update", "variable", "framework")
    ]


@LONG
def test_what_is_wrong_with_one_worker_too_is_no_race() -> None:
    """The stock optimizer loses counts, which would pass for a race for all of it."""
    target = f"{SUBJECTS}:make_keras3_applied_again"
    found = distbench.check(target, "ps:2+1", in_flight=8).findings
    origins = {finding.code: finding.origin for finding in found}
    assert origins["extra-update"] == "subject", found
    assert origins.get("iterations-wrong", "framework") == "framework", found


def test_the_state_is_the_same_whether_many_variables_are_read_at_once() -> None:
    count, in_order, equal = distbench.run(pack_state, "one")["worker", 0]
    assert count == 33
    assert in_order
    assert equal == [True, True, True]


def test_a_lookup_table_is_put_back() -> None:
    assert distbench.run(hold_tables, "one")["worker", 0] == [
        ([], True, [(b"a\0.", 1.0), (b"a.", 4.0)]),
        ([], True, [(1, [3.0, 4.0]), (3, [2.0, 4.0])]),
    ]


@LONG
def test_what_a_lookup_table_leads_has_a_place_in_flight() -> None:
    found = [
        distbench.check(f"{SERVED}:{name}", "ps:1+1", in_flight=2, steps=2).status
        for name in ("CountsInADenseTable", "CountsInATable", "CountsTwiceInATable")
    ]
    assert found == [Status.PASS, Status.PASS, Status.FAIL]


@LONG
def test_a_step_may_ask_for_its_worker() -> None:
    found = [
        distbench.check(f"{SERVED}:{name}", "ps:2+1", steps=2).status
        for name in ("AsksForItsWorker", "HalvesForTwoWorkers")
    ]
    found += [
        distbench.check(f"{SERVED}:AsksForItsWorker", "ps:2+1", in_flight=2).status
    ]
    assert found == [Status.PASS, Status.FAIL, Status.PASS]


def test_what_ended_before_a_step_began_was_written() -> None:
    count = 12
    timed = distbench.run(time_steps, "ps:2+1", args=(count,))["chief", 0]
    tries, begun, ended, before, after = zip(*timed, strict=True)
    assert tries == (1,) * count
    assert sorted(ended) == list(range(count))
    for step in range(count):
        assert (before[step][step], after[step][step]) == (0, 1)
        assert begun[step] <= ended[step]
        written = {other for other in range(count) if before[step][other]}
        assert {other for other in range(count) if ended[other] < begun[step]} <= (
            written
        )
    # Two workers were at work beside each other, or nothing was shown.
    assert any(late - early for early, late in zip(begun, ended, strict=True))


def test_one_worker_takes_one_step_after_the_other() -> None:
    run = _fly("make_sgd", "ps:1+1", in_flight=4, steps=2)
    assert run.tier == "exact"
    assert run.staleness == (0,) * 8


def test_a_step_between_steps_has_no_place_in_flight() -> None:
    with pytest.raises(BadInputError, match="nothing between steps in flight"):
        distbench.check(f"{ODD}:RaisesInBetween", "ps:1+1", in_flight=2)


def test_the_counting_workload_is_exact_in_lock_step() -> None:
    verdict = distbench.check(f"{SUBJECTS}:make_sgd", "mirrored:2", workload="counting")
    assert verdict.status is Status.PASS, describe_verdict(verdict)
    assert {run.tier for run in verdict.runs} == {"exact", "bounded"}
    assert all(run.status is Status.PASS for run in verdict.runs)


def test_counts_in_floating_point_are_not_rounded_in_other_orders() -> None:
    import numpy as np

    from distbench.scenario import Scenario
    from distbench.trace import Trace
    from distbench.worker.in_flight.rounds import Rounds

    begun_from = []

    class Seen(Rounds):
        def __init__(self) -> None:
            self._scenario = Scenario(
                target="a", cluster="ps:2+1", steps=2, in_flight=2, workload="linear"
            )
            self._places, self._commutes, self.torn = range(2), False, frozenset()
            numbers = [np.float32(number) for number in range(2)]
            self._starts = [
                {("count", 0): np.array(n), ("weight", 0): np.array(n + 0.3)}
                for n in numbers
            ]

        def _collect(self, number, values, events, start=None, times=None):
            begun_from.append((number, start or self._starts[number]))

        def _make_trace(self, name, values):
            return name

    notes = {"begun": [0, 0, 0, 0], "ended": [0, 1, 0, 1]}
    Seen().follow(
        Trace(name="", replicas=1, shards=(), variables=(), values={}, notes=notes)
    )
    weights = {float(start["weight", 0]) for number, start in begun_from if number}
    assert len(weights) > 1  # other graphs round otherwise
    assert {float(s["count", 0]) for number, s in begun_from if number} == {1.0}


@LONG
def test_a_copy_that_is_not_made_anew_is_a_stale_read() -> None:
    plan = plan_selftest(["every-other-step-fetches"], ["ps:1+1"])
    (cell,) = run_selftest(plan).faults
    assert mark_cell(cell) == "ok", (cell.found, cell.explanation)
