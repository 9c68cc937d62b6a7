"""A replica repeats its shard, whatever else its graph holds, and so do reruns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from distbench.cluster import ClusterSpec
from distbench.compare.arrays.pair import SHARD
from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.launch.rundir import RunDirectory
from distbench.observe import Launch, observe
from distbench.scenario import Scenario
from distbench.target import TargetRef, parse_target
from distbench.trace import SparseRows, TraceKey, Value
from distbench.verdict import Status

pytestmark = pytest.mark.cluster
SGD = "tf_keras.optimizers.legacy:SGD"


def _observe(scenario: Scenario, target: TargetRef, *, rerun: bool) -> Evidence:
    spec = ClusterSpec.parse(scenario.cluster).resolve(gpus=0, cpus=1)
    with RunDirectory() as directory:
        launch = Launch(directory=directory, rerun=rerun)
        seen = observe(target, scenario, spec, ("bounded",), launch)
    assert seen.failure is None
    return seen.evidence["bounded"]


def _list_arrays(value: Value) -> list[np.ndarray]:
    if isinstance(value, SparseRows):
        return [value.indices, value.values]
    return [value]


@pytest.mark.parametrize(
    ("workload", "cluster"),
    [("mlp", "mwms:2"), ("regularized", "mirrored:3"), ("embedding", "mirrored:2")],
)
def test_a_shard_gives_the_same_bits_in_every_graph(
    workload: str, cluster: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    target = parse_target(SGD, tmp_path_factory.getbasetemp())
    scenario = Scenario(target=SGD, workload=workload, cluster=cluster, steps=2)
    evidence = _observe(scenario, target, rerun=True)
    assert [rerun.name for rerun in evidence.reruns] == ["with the update", "op by op"]
    for rerun in evidence.reruns:
        keys = {key for key in evidence.reference.values if key in rerun.values}
        assert len(keys) == len(rerun.values) > 2 * evidence.reference.replicas
        for key in keys:
            pair = zip(
                _list_arrays(rerun.values[key]),
                _list_arrays(evidence.reference.values[key]),
                strict=True,
            )
            assert all(a.tobytes() == b.tobytes() for a, b in pair), key
    judgement = judge(evidence)
    assert judgement.status is Status.PASS
    assert judgement.references["loss"] == SHARD
    key = TraceKey(step=1, phase="loss", variable="", replica=1)
    wide = np.asarray(evidence.observed.values[key], np.float64) * (1 + 1e-6)
    values = {**evidence.observed.values, key: wide.astype(np.float32)}
    spoilt = replace(evidence, observed=replace(evidence.observed, values=values))
    judgement = judge(spoilt)
    assert judgement.status is Status.FAIL
    assert judgement.findings[0].code == "loss-misreported"


def test_shards_are_run_again_only_where_a_replica_does_not_repeat_its_own(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    target = parse_target(SGD, tmp_path_factory.getbasetemp())
    scenario = Scenario(target=SGD, workload="linear", cluster="mirrored:2", steps=1)
    assert _observe(scenario, target, rerun=False).reruns == ()
