"""GPUs that the driver lists and TensorFlow does not find: no run on CPUs instead."""

from __future__ import annotations

from pathlib import Path

import pytest
from played_gpus import play_driver, show_gpus

import distbench
from distbench.verdict import Status

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("cluster", ["mwms:2@gpu", "mirrored:2", "ps:1+1@gpu"])
def test_gpus_that_tensorflow_does_not_find_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: str
) -> None:
    play_driver(tmp_path, "echo 'GPU 0: A'; echo 'GPU 1: A'")
    # By names that none has, so that they are not found where there are some.
    show_gpus(monkeypatch, f"{tmp_path}:/usr/bin:/bin", "GPU-0,GPU-1")
    verdict = distbench.check(
        "tf_keras.optimizers.legacy:SGD", cluster=cluster, workloads=["linear"]
    )
    assert verdict.status is Status.ERROR
    assert "TensorFlow finds 0, although the driver lists" in verdict.runs[0].message
