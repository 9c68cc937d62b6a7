"""GPUs that the driver lists and TensorFlow does not find: no run on CPUs instead."""

from __future__ import annotations

from pathlib import Path

import pytest

import distbench
from distbench.verdict import Status

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("cluster", ["mwms:2@gpu", "mirrored:2", "ps:1+1@gpu"])
def test_gpus_that_tensorflow_does_not_find_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: str
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'GPU 0: A'; echo 'GPU 1: A'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    # So that they are not found where there are some.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-0,GPU-1")
    verdict = distbench.check(
        "tf_keras.optimizers.legacy:SGD", cluster=cluster, workloads=["linear"]
    )
    assert verdict.status is Status.ERROR
    assert "TensorFlow finds 0, although the driver lists" in verdict.runs[0].message
