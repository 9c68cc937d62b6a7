"""What a check leaves out, as it would say nothing: further replays, other ops."""

from __future__ import annotations

from pathlib import Path

import pytest

import distbench

pytestmark = pytest.mark.cluster


def _look_for_sources(searches: bool) -> tuple[int, int]:
    """Runs in a task: how often a conversion looks at a module, and its result."""
    import importlib
    import sys
    import types

    import tensorflow as tf
    from tensorflow.python.autograph.pyct import inspect_utils

    looked = []

    class Watched(types.ModuleType):
        @property
        def __file__(self) -> str:
            looked.append(self)
            return "elsewhere.py"

    sys.modules["watched"] = Watched("watched")
    if searches:
        importlib.reload(inspect_utils)

    def convert(number):
        if number > 2:
            number = number + 1
        return number

    convert.__module__ = "os"  # as a decorator of another module may leave it
    found = tf.function(convert)(tf.constant(3))
    return len(looked), int(found)


@pytest.mark.parametrize("searches", [False, True])
def test_a_conversion_looks_at_no_module(searches: bool) -> None:
    results = distbench.run(_look_for_sources, "one", args=(searches,))
    ((looked, found),) = results.values()
    assert (looked > 0) == searches
    assert found == 4


def _differs(path: str) -> bool:
    """Runs in a task: whether state counts that is not what follows from a replay."""
    import numpy as np

    from distbench.trace import Trace, TraceKey, VariableInfo
    from distbench.worker.one_device.held_against import differ

    infos = tuple(
        VariableInfo(
            path=name, role="variable", shape=(), dtype="float32", synchronised=shared
        )
        for name, shared in (("kernel", True), ("metric/total", False))
    )

    def make_trace(changed: str) -> Trace:
        values = {
            TraceKey(step=0, phase="variable", variable=info.path): np.float32(
                info.path == changed
            )
            for info in infos
        }
        return Trace(
            name="x", replicas=1, shards=(1,), variables=infos, values=values, notes={}
        )

    return differ(make_trace(path), make_trace(""), ("slot", "variable"))


@pytest.mark.parametrize(
    ("path", "counts"), [("kernel", True), ("metric/total", False)]
)
def test_no_replay_is_asked_for_what_a_replica_keeps_for_itself(
    path: str, counts: bool
) -> None:
    assert list(distbench.run(_differs, "one", args=(path,)).values()) == [counts]


def _is_read_late(factors: tuple[float, ...]) -> bool:
    """Runs in a task: whether a replica's gradients are not those of its shard.

    Args:
        factors: What it has of its shard's loss and gradient, by step.
    """
    import numpy as np

    from distbench.trace import COMPUTED, Trace, TraceKey, VariableInfo
    from distbench.worker.one_device.earlier import _is_other

    info = VariableInfo(
        path="kernel", role="variable", shape=(3,), dtype="float32", synchronised=True
    )

    def make_trace(factors: tuple[float, ...]) -> Trace:
        values = {}
        for step, factor in enumerate(factors):
            rows = np.arange(1, 4, dtype=np.float32) + step
            for phase in COMPUTED:
                key = TraceKey(
                    step=step,
                    phase=phase,
                    variable="" if phase == "loss" else "kernel",
                    replica=0,
                )
                own = rows if phase == "local_gradient" else rows[0]
                values[key] = np.asarray(np.float32(factor) * own)
        return Trace(
            name="x",
            replicas=1,
            shards=(1,),
            variables=(info,),
            values=values,
            notes={},
        )

    return _is_other(make_trace(factors), make_trace((1.0,) * len(factors)))


@pytest.mark.parametrize(
    ("factors", "is_late"),
    [((1.0, 1.0), False), ((0.5, 0.5), False), ((1.0, 0.5), True), ((0.5, 1.5), True)],
)
def test_a_share_of_the_shards_mean_is_not_run_from_earlier_variables(
    factors: tuple[float, ...], is_late: bool
) -> None:
    (found,) = distbench.run(_is_read_late, "one", args=(factors,)).values()
    assert found == is_late


def _count_replica_ids(file: str) -> dict[bool, int]:
    """Runs in a task: ops that tell a replica its number, without taps and with."""
    from in_task import open_session, open_strategy

    from distbench.scenario import Scenario
    from distbench.scenario.choices import PROGRAM
    from distbench.target import parse_target
    from distbench.target.loading import load_target
    from distbench.worker.subjects.user_program import UserProgram

    spec, strategy = open_strategy("mirrored:2@cpu")
    scenario = Scenario(target=file, workload=PROGRAM, cluster="mirrored:2")
    counts = {}
    for tapped in (False, True):
        program = UserProgram(load_target(parse_target(f"{file}:Program"))())
        session, shards = open_session(program, scenario, strategy, spec, tapped=tapped)
        graph = session.prepare(session.make_step(), shards)
        counts[tapped] = sum("replica_id" in op.name for op in graph.get_operations())
    return counts


def test_taps_ask_for_no_number_of_a_replica_in_the_graph() -> None:
    """Each of them was an op of the user's graph, and a tenth of the tracing."""
    subjects = str(Path(__file__).with_name("subjects.py"))
    (counts,) = distbench.run(_count_replica_ids, "one", args=(subjects,)).values()
    assert counts[True] == counts[False]


def _see_what_was_asked() -> dict[str, bool]:
    """Runs in a task: what its fork server has asked, by what it has asked of."""
    import _abc
    import importlib.metadata
    import weakref
    from unittest import mock

    import tensorflow as tf

    from distbench.worker.process.environment import describe_environment

    def is_kept(kind: type, abstract: type) -> bool:
        _, true, false, _ = _abc._get_dump(abstract)
        return weakref.ref(kind) in true | false

    class Unasked:
        pass

    with mock.patch.object(importlib.metadata, "version", side_effect=AssertionError):
        version = describe_environment()["tensorflow"]
    return {
        "kinds": is_kept(tf.Operation, tf.TypeSpec),
        "derived kinds": is_kept(tf.Operation, tf.RaggedTensor),
        "a kind of the task's own": is_kept(Unasked, tf.TypeSpec),
        "versions": version == tf.__version__,
    }


def test_a_fork_server_asks_what_each_task_would_ask() -> None:
    (asked,) = distbench.run(_see_what_was_asked, "one").values()
    assert asked == {
        "kinds": True,
        "derived kinds": True,
        "a kind of the task's own": False,
        "versions": True,
    }


def _name_taps(file: str) -> tuple[set[str], int]:
    """Runs in a task: how taps are called, and how many there are."""
    from in_task import open_session, open_strategy

    from distbench.scenario import Scenario
    from distbench.target import parse_target
    from distbench.target.loading import load_target
    from distbench.worker.subjects.kinds import make_program

    spec, strategy = open_strategy("mirrored:2@cpu")
    scenario = Scenario(target=file, workload="linear", cluster="mirrored:2")
    target = load_target(parse_target(f"{file}:make_keras2_adam"))
    program = make_program(target, scenario)
    session, shards = open_session(program, scenario, strategy, spec)
    session.prepare(session.make_step(), shards)
    names = [sink.name for sinks in session.board._sinks.values() for sink in sinks]
    return set(names), len(names)


def test_taps_are_made_by_one_op() -> None:
    """A name is a part of the op, and the first run of an op takes a millisecond."""
    subjects = str(Path(__file__).with_name("family_subjects.py"))
    ((names, count),) = distbench.run(_name_taps, "one", args=(subjects,)).values()
    assert count > len(names) == 1


def _may_reduce_again(target: str) -> bool:
    """Runs in a task: whether a program may reduce what it reduced before."""
    from in_task import open_session, open_strategy

    from distbench.scenario import Scenario
    from distbench.scenario.choices import PROGRAM
    from distbench.target import parse_target
    from distbench.target.loading import load_target
    from distbench.worker.one_device.reference import Reference
    from distbench.worker.subjects.user_program import UserProgram

    spec, strategy = open_strategy("one@cpu")
    program = UserProgram(load_target(parse_target(target))())
    scenario = Scenario(target=target, workload=PROGRAM, cluster="mirrored:2")
    session, _ = open_session(program, scenario, strategy, spec)
    return Reference(session, scenario, 2).exchanged.may_reduce_again


@pytest.mark.parametrize(
    ("name", "may"),
    [
        ("ByOptimizer", False),
        ("OneByOne", False),
        ("Twice", True),
        ("WithANorm", True),
        ("KeptBetween", True),
    ],
)
def test_a_step_that_reduces_once_is_not_traced_for_more(name: str, may: bool) -> None:
    target = f"{Path(__file__).with_name('reducing_programs.py')}:{name}"
    results = distbench.run(_may_reduce_again, "one", args=(target,))
    assert list(results.values()) == [may]


def _count_feeds(reduced: tuple[float, ...]) -> int:
    """Runs in a task: how often one device is fed, to know a sum that is no sum.

    Args:
        reduced: What two replicas reduce of gradients of 2 and 4, by step, or of NaN;
            one device hands on 3 for the global batch.
    """
    from types import SimpleNamespace

    import numpy as np

    from distbench.trace import WHOLE, Trace, TraceKey, VariableInfo
    from distbench.worker.one_device.by_hand import try_sums
    from distbench.worker.process.failures import SubjectError

    info = VariableInfo(
        path="kernel", role="variable", shape=(3,), dtype="float32", synchronised=True
    )

    def make_trace(replicas: int, found: dict[tuple[int, str, int], float]) -> Trace:
        values = {
            TraceKey(
                step=step, phase=phase, variable="kernel", replica=replica
            ): np.full(3, number, np.float32)
            for (step, phase, replica), number in found.items()
        }
        return Trace(
            name="x",
            replicas=replicas,
            shards=(1,) * replicas,
            variables=(info,),
            values=values,
            notes={},
        )

    reference, observed = {}, {}
    for step, number in enumerate(reduced):
        for phase in ("local_gradient", "reduced_gradient"):
            reference[step, phase, WHOLE] = 3.0
        for replica in range(2):
            own = number if np.isnan(number) else 2.0 * (replica + 1)
            observed[step, "local_gradient", replica] = own
            observed[step, "reduced_gradient", replica] = number
    fed = []

    def feed(*given, **_):
        fed.append(given)
        raise SubjectError("step", None)

    feeder = SimpleNamespace(takes=lambda _: True, feed=feed)
    traces = make_trace(2, reference), make_trace(2, observed)
    try_sums(feeder, "bounded", *traces, is_explained=True)
    return len(fed)


@pytest.mark.first(4)
@pytest.mark.parametrize(
    ("reduced", "count"),
    [
        ((6.0, 6.0), 0),
        ((3.0, 3.0), 0),
        ((float("nan"), 6.0), 0),
        ((6.0, 1.0), 1),
    ],
    ids=["sums", "one-device", "no-room", "neither"],
)
def test_one_device_takes_no_sum_where_none_is_wrong(
    reduced: tuple[float, ...], count: int
) -> None:
    (found,) = distbench.run(_count_feeds, "one", args=(reduced,)).values()
    assert found == count
