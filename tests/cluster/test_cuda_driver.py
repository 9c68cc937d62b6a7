"""The fork server of a check leaves the CUDA driver alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cuda_stand_in
import pytest

from distbench.cluster import ClusterSpec
from distbench.launch.channel import TaskChannel
from distbench.launch.engine import Request
from distbench.launch.local import LocalEngine
from distbench.launch.rundir import RunDirectory
from distbench.launch.start import start_group
from distbench.launch.task import TaskContext, serve
from distbench.preloading import PRELOADS

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        bool(cuda_stand_in.find_lack()), reason=cuda_stand_in.find_lack()
    ),
]


def run_task(channel: TaskChannel, context: TaskContext) -> None:
    def list_gpus(payload: Mapping[str, Any]) -> Mapping[str, Any]:
        import tensorflow as tf

        return {"gpus": len(tf.config.list_physical_devices("GPU"))}

    serve(channel, {"list": list_gpus})


def test_nothing_that_is_imported_before_the_fork_initialises_the_driver(
    tmp_path: Path,
) -> None:
    variables = cuda_stand_in.compile_stand_in(tmp_path)
    with (
        RunDirectory() as directory,
        start_group(
            Request(
                spec=ClusterSpec.parse("mwms:1"),
                directory=directory,
                entry=f"{Path(__file__).stem}:run_task",
                preload=PRELOADS,
                environment={**variables, "TF_CPP_MIN_LOG_LEVEL": "3"},
                start="fork",
            ),
            LocalEngine(),
        ) as group,
    ):
        assert not cuda_stand_in.was_initialised(variables)
        # As a task does, whose process has its own driver: so the stand-in is in use.
        group.call("list", {}, deadline=60.0)
        assert cuda_stand_in.was_initialised(variables)
