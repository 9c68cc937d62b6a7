"""What a check leaves out, as it would say nothing: other traces, further replays."""

from __future__ import annotations

from pathlib import Path

import pytest

import distbench

pytestmark = pytest.mark.cluster
MODELS = Path(__file__).with_name("keras_models.py")


def _count_traces(name: str) -> tuple[int, int]:
    """Runs in a task: traces of a model's train function, prepared and after `fit`."""
    from distbench.cluster import ClusterSpec, Task
    from distbench.scenario import MODEL, Scenario
    from distbench.target import load_target, parse_target
    from distbench.worker.keras_model import _find_traced
    from distbench.worker.session import Session
    from distbench.worker.sizes import find_sizes
    from distbench.worker.strategies import configure_runtime, make_strategy
    from distbench.worker.subjects import make_program

    spec = ClusterSpec.parse("mirrored:2@cpu")
    scenario = Scenario(target=name, workload=MODEL, cluster="mirrored:2")
    configure_runtime(spec, 0)
    program = make_program(load_target(parse_target(f"{MODELS}:{name}")), scenario)
    task = Task(role="worker", index=0)
    session = Session(program, make_strategy(spec), spec, task)
    shards = list(find_sizes(program, scenario, 2).cut(0, program.data(0)))
    step = session.make_step()
    session.prepare(step, shards)
    traced = _find_traced(step._function)
    prepared = traced.experimental_get_tracing_count()
    session.run(step, shards)
    return prepared, traced.experimental_get_tracing_count()


@pytest.mark.parametrize("name", ["make_dense", "make_keras3"])
def test_fit_runs_the_function_that_was_prepared(name: str) -> None:
    results = distbench.run(_count_traces, "one", args=(name,))
    ((prepared, ran),) = results.values()
    assert ran == prepared > 0


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
    from distbench.worker.replay import _differ

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

    return _differ(make_trace(path), make_trace(""), ("slot", "variable"))


@pytest.mark.parametrize(
    ("path", "counts"), [("kernel", True), ("metric/total", False)]
)
def test_no_replay_is_asked_for_what_a_replica_keeps_for_itself(
    path: str, counts: bool
) -> None:
    assert list(distbench.run(_differs, "one", args=(path,)).values()) == [counts]


def _count_replica_ids(file: str) -> dict[bool, int]:
    """Runs in a task: ops that tell a replica its number, without taps and with."""
    from distbench.cluster import ClusterSpec
    from distbench.scenario import PROGRAM, Scenario
    from distbench.target import load_target, parse_target
    from distbench.worker.session import Session
    from distbench.worker.sizes import find_sizes
    from distbench.worker.strategies import configure_runtime, make_strategy
    from distbench.worker.user_program import UserProgram

    spec = ClusterSpec.parse("mirrored:2@cpu")
    scenario = Scenario(target=file, workload=PROGRAM, cluster="mirrored:2")
    configure_runtime(spec, 0)
    strategy = make_strategy(spec)
    counts = {}
    for tapped in (False, True):
        program = UserProgram(load_target(parse_target(f"{file}:Program"))())
        session = Session(program, strategy, spec, spec.tasks[0], tapped=tapped)
        sizes = find_sizes(program, scenario, spec.replicas)
        shards = list(sizes.cut(0, program.data(0)))
        graph = session.prepare(session.make_step(), shards)
        counts[tapped] = sum("replica_id" in op.name for op in graph.get_operations())
    return counts


def test_taps_ask_for_no_number_of_a_replica_in_the_graph() -> None:
    """Each of them was an op of the user's graph, and a tenth of the tracing."""
    subjects = str(Path(__file__).with_name("subjects.py"))
    (counts,) = distbench.run(_count_replica_ids, "one", args=(subjects,)).values()
    assert counts[True] == counts[False]
