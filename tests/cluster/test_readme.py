"""What the README claims, held against a run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import distbench
from distbench.verdict import Status, describe_verdict

pytestmark = pytest.mark.cluster
README = Path(__file__).parents[2] / "README.md"


def read_example() -> tuple[str, str]:
    """The program in the section on a bug that was found, and what came out."""
    section = README.read_text("utf-8").split("## A bug, found")[1].split("\n## ")[0]
    program, output = re.findall(r"```\w+\n(.*?)```", section, re.DOTALL)
    return program, " ".join(output.split())


def test_the_bug_of_the_readme_is_found_as_it_says(tmp_path: Path) -> None:
    program, output = read_example()
    file = tmp_path / "my_optimizer.py"
    file.write_text(program, "utf-8")
    verdict = distbench.check(
        f"{file}:make_clipped_sgd", "mwms:2", workload="linear", tier="bounded"
    )
    assert verdict.status is Status.FAIL
    assert verdict.findings[0].explanation in output, describe_verdict(verdict)


def test_its_remedy_passes() -> None:
    def make_clipped_sgd():
        import tf_keras

        return tf_keras.optimizers.legacy.SGD(0.01, global_clipnorm=1.0)

    verdict = distbench.check(make_clipped_sgd, "mwms:2", workload="linear")
    assert verdict.status is Status.PASS, describe_verdict(verdict)


def list_listeners() -> set[str]:
    import psutil
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    assert strategy.num_replicas_in_sync == 2
    connections = psutil.Process().net_connections()
    return {c.laddr.ip for c in connections if c.status == psutil.CONN_LISTEN}


def test_tensorflow_listens_on_every_interface() -> None:
    """If this fails, TensorFlow got better and the README's warning can go."""
    listeners = set().union(*distbench.run(list_listeners, "mwms:2").values())
    assert listeners & {"::", "0.0.0.0"}
