"""No file is shared: agents that see nothing of the bench's temporary files."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from agent_support import FolderEngine

import distbench
from distbench.checking import checker
from distbench.verdict import Verdict
from distbench.verdict.document import verdict_to_json

pytestmark = pytest.mark.nightly
ROOT = Path(__file__).parents[2]
CLUSTER = ROOT / "tests" / "cluster"
ADAM = f"{ROOT / 'scenarios' / 'optimizers' / 'adam.py'}:make_adam"
_HIDE = 'mount -t tmpfs none "$0" && exec "$@"'


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bench's folder for temporary files."""
    return tmp_path_factory.mktemp("bench")


@pytest.fixture(scope="module")
def engine(
    tmp_path_factory: pytest.TempPathFactory, hidden: Path
) -> Iterator[FolderEngine]:
    (hidden / "seen").touch()
    enter = ("unshare", "--mount", "sh", "-c", _HIDE, str(hidden))
    tried = subprocess.run([*enter, "test", "-e", hidden / "seen"], capture_output=True)
    if os.geteuid() != 0 or tried.returncode != 1 or tried.stderr:
        pytest.skip(f"need root and mount namespaces, have {tried.stderr.decode()}")
    with FolderEngine(tmp_path_factory.mktemp("nodes"), enter=enter) as engine:
        yield engine


def check_by_value(**options: Any) -> Verdict:
    import tf_keras

    rate = 0.5
    return distbench.check(
        lambda: tf_keras.optimizers.legacy.SGD(rate), "mwms:2", **options
    )


def check_pipeline(**options: Any) -> Verdict:
    target = f"{CLUSTER / 'pipelines.py'}:Sharded"
    return distbench.check(target, "mwms:2", **options)


def check_restored(**options: Any) -> Verdict:
    return distbench.check(
        ADAM, "mirrored:2", workload="linear", restore_from="mwms:2", **options
    )


def check_large(**options: Any) -> Verdict:
    # Its arrays are files of their own beside the traces.
    target = f"{CLUSTER / 'test_large_models.py'}:Wide"
    clusters = ("mwms:2", "mirrored:2")
    return distbench.check(target, clusters, tiers=("bounded",), steps=2, **options)


def check_wrong(**options: Any) -> Verdict:
    # Found, set beside the framework's own, and confirmed by one more cluster.
    target = f"{ROOT / 'docs' / 'examples' / 'larc.py'}:make_larc"
    clusters = ("mwms:2", "mirrored:2")
    return distbench.check(target, clusters, workload="linear", **options)


_LOOPS = """
import numpy as np
import tensorflow as tf
import tf_keras

class Loops:
    def build(self, strategy):
        self.kernel = tf.Variable(np.ones((4, 3), "float32"), name="kernel")
        self._optimizer = tf_keras.optimizers.legacy.SGD(0.1)

    def variables(self):
        return [self.kernel]

    def optimizer(self):
        return self._optimizer

    def data(self, step):
        return np.random.default_rng(step).normal(size=(16, 4)).astype("float32")

    def replica_step(self, batch):
        with tf.GradientTape() as tape:
            loss = 0.0
            for example in batch:  # a tensor: AutoGraph needs the source
                loss += tf.reduce_sum((example[None] @ self.kernel) ** 2) / 16
        gradients = tape.gradient(loss, [self.kernel])
        self._optimizer.apply_gradients(zip(gradients, [self.kernel], strict=True))
        return loss
"""


def check_file(**options: Any) -> Verdict:
    file = Path(tempfile.gettempdir()) / "loops.py"
    file.write_text(_LOOPS)
    return distbench.check(f"{file}:Loops", "mwms:2", **options)


@pytest.mark.parametrize(
    "ask",
    [
        check_by_value,
        check_file,
        check_pipeline,
        check_restored,
        check_large,
        check_wrong,
    ],
    ids=lambda ask: ask.__name__,
)
def test_a_verdict_is_that_of_tasks_beside_the_bench(
    ask: Callable[..., Verdict],
    engine: FolderEngine,
    hidden: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(hidden))
    beside = ask()
    monkeypatch.setattr(checker, "open_engine", lambda *_, **__: nullcontext(engine))
    assert strip(ask(engine="slurm")) == strip(beside)
    assert beside.runs


def test_steps_in_flight_may_be_judged_from_afar(
    engine: FolderEngine, hidden: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Which step meets which is chance; of an optimizer without races all pass.
    target = f"{ROOT / 'scenarios' / 'optimizers' / 'sgd.py'}:make_sgd"
    monkeypatch.setattr(tempfile, "tempdir", str(hidden))
    monkeypatch.setattr(checker, "open_engine", lambda *_, **__: nullcontext(engine))
    verdict = distbench.check(target, "ps:2+1", in_flight=4, engine="slurm")
    assert [str(run.status) for run in verdict.runs] == ["pass"]
    assert verdict.runs[0].checked > 0


def strip(verdict: Verdict) -> Any:
    document = json.loads(verdict_to_json(verdict))
    for name in ("environment", "begun", "options"):
        del document[name]
    for part in (document, *document["runs"]):
        del part["seconds"]
    return document
