"""Clusters with as many replicas are judged by one run on one device, each as alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import distbench
from distbench.observe import one_device
from distbench.target import TargetRef
from distbench.verdict import Verdict
from distbench.verdict.document import verdict_to_json

pytestmark = pytest.mark.cluster
HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CLUSTERS = ("mirrored:2", "mwms:2", "central:2")

SUBJECTS = {
    "correct": (
        f"{ROOT}/scenarios/optimizers/lazy_adam.py:make_lazy_adam",
        "embedding",
    ),
    "clips too early": (
        f"{ROOT}/docs/examples/my_optimizer.py:make_clipped_sgd",
        "mlp",
    ),
    "random": (f"{HERE}/odd_programs.py:Dropout", None),
    "counts its batches": (f"{HERE}/odd_programs.py:DrawsOn", None),
    "changes its size": (f"{HERE}/odd_programs.py:SmallerLastBatch", None),
}
"""What one cluster asks of one device, and what it leaves there, differs among them."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What tasks were asked of the subject; controls have runs of their own."""
    jobs: list[str] = []
    ask = one_device.ask_one

    def count(one: Any, job: str, *args: Any, target: TargetRef, **options: Any) -> Any:
        if "controls" not in target.describe():
            jobs.append(job)
        return ask(one, job, *args, target=target, **options)

    monkeypatch.setattr(one_device, "ask_one", count)
    return jobs


def describe_runs(*verdicts: Verdict) -> list[dict[str, Any]]:
    """All that the runs of verdicts say, but for what they took."""
    runs = [r for v in verdicts for r in json.loads(verdict_to_json(v))["runs"]]
    taken = ("seconds", "disk_bytes")
    return [{k: v for k, v in run.items() if k not in taken} for run in runs]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "correct" else pytest.mark.nightly)
        for name in SUBJECTS
    ],
)
def test_each_cluster_gets_the_verdict_that_it_gets_alone(
    name: str, asked: list[str]
) -> None:
    subject, workload = SUBJECTS[name]
    together = distbench.check(subject, CLUSTERS, workload=workload)
    # What draws is run once more on each cluster, and given its numbers.
    again = len(CLUSTERS) if name == "random" else 0
    assert asked == ["reference"] * (1 + again)
    alone = [distbench.check(subject, c, workload=workload) for c in CLUSTERS]
    assert len(asked) == 1 + again + len(CLUSTERS) + again
    # The first run that shows a cause tries it, and so does each one that is alone.
    runs = describe_runs(together), describe_runs(*alone)
    for found in (finding for side in runs for r in side for finding in r["findings"]):
        found.pop("confirmed", None)
    for one, other in zip(*runs, strict=True):
        assert one.keys() == other.keys()
        differing = {k: (one[k], other[k]) for k in one if one[k] != other[k]}
        assert not differing, differing


def test_what_differs_beyond_the_cluster_has_a_run_of_its_own(asked: list[str]) -> None:
    make_sgd = f"{ROOT}/scenarios/optimizers/sgd.py:make_sgd"
    clusters = ("mirrored:2", "mirrored:3", "one")
    verdict = distbench.check(make_sgd, clusters, workload="linear", steps=1)
    assert str(verdict.status) == "pass"
    assert asked == ["reference"] * 3


def test_a_task_that_built_its_subject_twice_is_not_asked_again(
    asked: list[str],
) -> None:
    subject = f"{HERE}/odd_programs.py:StartsAnywhere"
    verdict = distbench.check(subject, ("mirrored:2", "mwms:2"))
    assert asked == ["reference"] * 2
    assert {str(run.status) for run in verdict.runs} == {"pass"}
