"""Observing must not disturb: with taps and without, every bit is the same."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

import distbench
from distbench.scenario import Scenario
from distbench.scenario.choices import MODEL, PROGRAM
from distbench.verdict import Status, describe_verdict

pytestmark = pytest.mark.cluster
LONG = pytest.mark.nightly  # what it shows is shown by a shorter test as well
SUBJECTS = Path(__file__).with_name("family_subjects.py")
MODELS = Path(__file__).with_name("keras_models.py")
FAMILIES = ("make_keras2_adam", "make_keras3_adam", "make_v1_adam")
SCALED = {
    "overflow": ("make_legacy_scaled", "make_keras2_scaled"),
    # Keras 3 does not skip a step on all replicas if one overflows.
    "embedding": ("make_keras3_scaled",),
}
CLUSTERS = ["one", "mirrored:2", "central:2", "mwms:2", "ps:1+1"]


def _train(scenario: Scenario, spec_text: str, *, tapped: bool, scale: float = 1.0):
    """Runs in a task: train freely, return a digest of each component's final value."""
    import tf_keras

    place = _find_place(spec_text)
    if place is None:
        return {}

    def factory():
        optimizer = tf_keras.optimizers.legacy.Adam(0.1)
        if scale != 1.0:
            optimizer.gradient_transformers = [
                lambda pairs: [(gradient * scale, v) for gradient, v in pairs]
            ]
        return optimizer

    return _train_in(place, factory, scenario, tapped=tapped)


def _train_families(
    scenario: Scenario, spec_text: str, names=FAMILIES, file: Path | str = SUBJECTS
):
    """Runs in a task: digests of each subject without taps and with them."""
    from distbench.target import parse_target
    from distbench.target.loading import load_target

    place = _find_place(spec_text)
    if place is None:
        return {}
    makers = {n: load_target(parse_target(f"{file}:{n}")) for n in names}
    # A second optimizer of a name gets another one: compared by their order.
    return {
        (tapped, name): list(_train_in(place, make, scenario, tapped=tapped).values())
        for tapped in (False, True)
        for name, make in makers.items()
    }


def _find_place(spec_text: str):
    """Strategy, spec and task of this process; None where it only serves."""
    import json
    import os

    from distbench.cluster import ClusterSpec, Task
    from distbench.worker.process.strategies import make_strategy

    spec = ClusterSpec.parse(spec_text)
    config = os.environ.get("TF_CONFIG", '{"task": {"type": "worker", "index": 0}}')
    named = json.loads(config)["task"]
    task = Task(role=named["type"], index=named["index"])
    if spec.kind == "ps" and task.role != "chief":
        return None
    return make_strategy(spec), spec, task


def _train_in(place, factory, scenario: Scenario, *, tapped: bool):
    from distbench.worker.process.chance import seed_chance
    from distbench.worker.stepping.session import Session
    from distbench.worker.subjects.kinds import make_program
    from distbench.worker.subjects.sizes import find_sizes

    seed_chance(scenario.seed)
    program = make_program(factory, scenario)
    session = Session(program, *place, tapped=tapped)
    sizes = find_sizes(program, scenario, place[1].replicas)
    trained = session.make_step()
    session.prepare(trained, list(sizes.cut(0, program.data(0))))
    for step in range(3):
        session.run(trained, list(sizes.cut(step, program.data(step))))
        if tapped:
            shown: dict[Any, Any] = {}
            session.collect_results(step, session.read_state(), shown)
            assert shown or not session.metrics
    return {
        key: hashlib.sha256(array.tobytes()).hexdigest()
        for key, array in session.read_state().items()
    }


def _run(cluster: str, workload: str, path: str = "default", **options):
    scenario = Scenario(target="adam", workload=workload, cluster=cluster, path=path)
    results = distbench.run(
        lambda: _train(scenario, f"{cluster}@cpu", **options), cluster
    )
    found = {
        (task, key): digest
        for task, digests in results.items()
        for key, digest in digests.items()
    }
    assert found
    return found


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("workload", ["linear", "embedding"])
def test_taps_leave_every_bit_as_it_is(cluster: str, workload: str) -> None:
    assert _run(cluster, workload, tapped=True) == _run(cluster, workload, tapped=False)


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_taps_leave_every_family_as_it_is(cluster: str) -> None:
    scenario = Scenario(target="adam", workload="embedding", cluster=cluster)
    results = distbench.run(
        lambda: _train_families(scenario, f"{cluster}@cpu"), cluster
    )
    found = [trained for trained in results.values() if trained]
    assert found
    for trained in found:
        for name in FAMILIES:
            # Three variables, two slots of each, the rate or two powers, and a counter.
            assert len(trained[True, name]) >= 9
            assert trained[True, name] == trained[False, name], name


@pytest.mark.parametrize("workload", list(SCALED))
@pytest.mark.parametrize("cluster", ["mirrored:2", "mwms:2"])
def test_taps_leave_a_loss_scale_as_it_is(cluster: str, workload: str) -> None:
    """A step that is skipped leaves the taps behind the condition unwritten."""
    names = SCALED[workload]
    scenario = Scenario(target="adam", workload=workload, cluster=cluster)
    results = distbench.run(
        lambda: _train_families(scenario, f"{cluster}@cpu", names), cluster
    )
    assert results
    for trained in results.values():
        for name in names:
            # Two or three variables with two slots of each, a scale and two counters.
            assert len(trained[True, name]) >= 9
            assert trained[True, name] == trained[False, name], name


@pytest.mark.parametrize(
    ("name", "cluster"), [("make_dense", "mwms:2"), ("make_keras3", "mirrored:2")]
)
def test_taps_leave_a_model_as_it_is(name: str, cluster: str) -> None:
    scenario = Scenario(target=name, workload=MODEL, cluster=cluster)
    results = distbench.run(
        lambda: _train_families(scenario, f"{cluster}@cpu", (name,), MODELS), cluster
    )
    assert results
    for trained in results.values():
        # Four variables, two slots or an average of each, two metrics, a counter.
        assert len(trained[True, name]) >= 9
        assert trained[True, name] == trained[False, name]


@LONG
@pytest.mark.parametrize("cluster", ["mirrored:2", "mwms:2"])
def test_asking_metrics_leaves_a_program_as_it_is(cluster: str) -> None:
    """One of them forgets what it showed, on one device; a cluster does not let it."""
    names = ("UnlistedMetrics", "MetricsThatRescale")
    scenario = Scenario(target=names[0], workload=PROGRAM, cluster=cluster)
    results = distbench.run(
        lambda: _train_families(
            scenario, f"{cluster}@cpu", names, "distbench.unusual.local_state"
        ),
        cluster,
    )
    assert results
    for trained in results.values():
        for name in names:
            # Five variables, a slot of each, a counter, and parts of the metrics.
            assert len(trained[True, name]) >= 15
            assert trained[True, name] == trained[False, name], name


@pytest.mark.parametrize(
    "path",
    [
        "user",
        "aggregator-two-stage",
        "global-clipnorm",
    ],
)
def test_taps_leave_every_path_as_it_is(path: str) -> None:
    tapped = _run("mirrored:2", "embedding", path, tapped=True)
    assert tapped == _run("mirrored:2", "embedding", path, tapped=False)


def test_a_gradient_scaled_by_a_millionth_is_noticed() -> None:
    scaled = _run("mirrored:2", "linear", tapped=True, scale=1 + 1e-6)
    assert scaled != _run("mirrored:2", "linear", tapped=False)


@LONG
def test_taps_stay_out_of_what_xla_compiles() -> None:
    """A tap's shape is not fixed, and XLA cannot assign such a variable.

    Of several CPUs in one step it compiles nothing, so there is one.
    """
    subject = Path(__file__).with_name("subjects.py")
    verdict = distbench.check(f"{subject}:make_adam", "one", workload="mlp", jit=True)
    assert verdict.status is Status.PASS, describe_verdict(verdict)
    assert "--tf_xla_cpu_global_jit" in verdict.environment["variables"]["TF_XLA_FLAGS"]
