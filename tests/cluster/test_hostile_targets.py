"""Targets that do at import what nobody expects: the bench lives, and says who did."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from waiting import is_gone_soon

import distbench
from distbench.errors import BadInputError, ClusterError
from distbench.verdict import Status, describe_verdict

pytestmark = pytest.mark.cluster

_RIGHT = """
def make():
    import tf_keras
    return tf_keras.optimizers.legacy.SGD(0.5)
"""
_MEDDLES = """
import multiprocessing, os, pathlib, random, signal, subprocess, sys, threading
import tensorflow as tf
with open({folder!r} + "/pids", "a") as pids:
    print(os.getpid(), file=pids)
print("\\x1b[2J" + '{{"event": "finished", "result": {{}}}}', flush=True)
tf.random.normal([3])
random.seed()
os.chdir("/")
os.environ["TF_CONFIG"] = "{{}}"
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sys.path.clear()
threading.Thread(target=threading.Event().wait, daemon=True).start()
sleeper = subprocess.Popen(["sleep", "600"], start_new_session=True)
lock = multiprocessing.Lock()
fork = os.fork()
if fork == 0:
    sys.stderr = None  # and goes on, as if it were the task
else:
    with open({folder!r} + "/left", "a") as left:
        print(sleeper.pid, fork, file=left)
"""


def check(folder: Path, text: str, cluster: str | list[str] = "mwms:2", **options):
    target = folder / "target.py"
    target.write_text(text + _RIGHT)
    return distbench.check(
        f"{target}:make",
        cluster,
        workload="linear",
        tier="exact",
        steps=1,
        **options,
    )


def test_what_an_import_meddles_with_is_the_tasks_own(tmp_path: Path) -> None:
    before = Path.cwd(), list(os.environ.items())
    verdict = check(tmp_path, _MEDDLES.format(folder=str(tmp_path)))
    assert verdict.status is Status.PASS, describe_verdict(verdict)
    assert (Path.cwd(), list(os.environ.items())) == before
    pids = (tmp_path / "pids").read_text().split()
    # One device and two workers; this process has imported nothing.
    assert len(set(pids)) == len(pids) == 3
    assert str(os.getpid()) not in pids
    left = [int(pid) for pid in (tmp_path / "left").read_text().split()]
    assert len(set(left)) == 6
    assert [pid for pid in left if not is_gone_soon(pid)] == []


_SPAWNS = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from distbench.samples.program import Program

def square(x):
    return x * x

class Spawning(Program):
    def build(self, strategy):
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=spawn) as pool:
            assert list(pool.map(square, [1, 2])) == [1, 4]
        super().build(strategy)
"""


def test_a_pool_of_spawned_processes_runs_functions_of_the_file(tmp_path: Path) -> None:
    target = tmp_path / "my.target.py"
    target.write_text(_SPAWNS)
    verdict = distbench.check(f"{target}:Spawning", "mwms:2", steps=1)
    assert verdict.status is Status.PASS, describe_verdict(verdict)


def test_a_fork_that_an_import_leaves_running_builds_nothing(tmp_path: Path) -> None:
    """It has the task's connections, and would speak for it to the other tasks."""
    target = tmp_path / "target.py"
    target.write_text(
        f"""
import os
from distbench.samples.program import Program
os.fork()
class Forked(Program):
    def build(self, strategy):
        with open({str(tmp_path)!r} + "/built", "a") as built:
            print(os.getpid(), file=built)
        super().build(strategy)
"""
    )
    verdict = distbench.check(f"{target}:Forked", "mwms:2", steps=1)
    assert verdict.status is Status.PASS, describe_verdict(verdict)
    built = (tmp_path / "built").read_text().split()
    # One device and two workers, however often each builds it.
    assert len(set(built)) == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("raise SystemExit('not here')\n", "target.py:make.*SystemExit: not here"),
        ("import no_such_module\n", "target.py:make.*No module named 'no_such_module'"),
        (
            "import tensorflow as tf\ntf.compat.v1.disable_v2_behavior()\n",
            "target.py:make' turns eager execution off as it is imported",
        ),
        (
            "import tensorflow as tf\ntf.config.run_functions_eagerly(True)\n",
            "target.py:make' has all functions run op by op.*Leave that call out",
        ),
        (
            "import tensorflow as tf\n"
            "tf.config.threading.set_inter_op_parallelism_threads(1)\n",
            "target.py:make.*The bench has started TensorFlow by then",
        ),
    ],
    ids=["leaves", "misses", "without-eager", "without-graphs", "settles-threads"],
)
def test_an_import_that_fails_is_bad_input(
    tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(BadInputError, match=words):
        check(tmp_path, text)


_AT_WORKER_1 = """
import json, os
if json.loads(os.environ.get("TF_CONFIG") or "{}").get("task", {}).get("index") == 1:
    {raising}
"""


@pytest.mark.parametrize(
    ("raising", "code", "status", "words"),
    [
        ("open('/no/such.csv')", "raises", Status.FAIL, "raised FileNotFoundError"),
        ("raise SystemExit(0)", "raises", Status.FAIL, "raised SystemExit: 0"),
        ("raise MemoryError", "", Status.ERROR, "raised MemoryError"),
        ("os._exit(0)", "", Status.ERROR, "ended with exit code 0"),
    ],
    ids=["raises", "leaves", "lacks", "ends"],
)
def test_an_import_that_fails_on_one_worker_alone_fails_its_cluster(
    tmp_path: Path, raising: str, code: str, status: Status, words: str
) -> None:
    text = _AT_WORKER_1.replace("{raising}", raising)
    verdict = check(tmp_path, text, cluster=["mirrored:2", "mwms:2"])
    (whole, broken) = verdict.runs
    assert (whole.status, broken.status) == (Status.PASS, status)
    assert [f.code for f in broken.findings] == [code] * bool(code)
    told = broken.findings[0].explanation if code else broken.message
    assert "worker-1 of 'mwms:2@cpu'" in told
    assert words in told
    assert ("Step 0, load" if code else "last at phase load") in told


def test_an_import_that_ends_the_process_is_told(tmp_path: Path) -> None:
    words = "worker-0 of 'one@cpu' ended with exit code 9"
    with pytest.raises(ClusterError, match=words):
        check(tmp_path, "import os; os._exit(9)\n")


def test_an_import_has_the_time_that_is_given(tmp_path: Path) -> None:
    words = "Job 'describe' of 'one@cpu' passed its deadline of 2 s"
    with pytest.raises(ClusterError, match=words):
        check(tmp_path, "import threading; threading.Event().wait()\n", timeout_s=2.0)


@pytest.mark.parametrize(
    "strategy", ["MirroredStrategy", "MultiWorkerMirroredStrategy"]
)
def test_an_import_may_make_the_strategy_of_its_script(
    tmp_path: Path, strategy: str
) -> None:
    """Most scripts have one on their top level; the steps run under the bench's."""
    text = f"import tensorflow as tf\nstrategy = tf.distribute.{strategy}()\n"
    verdict = check(tmp_path, text)
    assert verdict.status is Status.PASS, describe_verdict(verdict)


_CHOOSES = """
import os
os.environ["TF_USE_LEGACY_KERAS"] = "1"
import tensorflow as tf
from tensorflow.keras import optimizers

def make():
    return optimizers.legacy.SGD(0.5)

"""


@pytest.mark.nightly
def test_an_import_may_choose_its_keras(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a script does; the tasks had imported TensorFlow without the setting."""
    monkeypatch.delenv("TF_USE_LEGACY_KERAS", raising=False)
    target = tmp_path / "target.py"
    target.write_text(_CHOOSES)
    options = {"workload": "linear", "tier": "exact", "steps": 1}
    verdict = distbench.check(f"{target}:make", "mirrored:2", **options)
    assert verdict.status is Status.PASS, describe_verdict(verdict)
    (run,) = verdict.runs
    assert run.setup["keras"] == "legacy"
    with pytest.raises(BadInputError, match=r"sets TF_USE_LEGACY_KERAS to 1.*'3'"):
        distbench.check(f"{target}:make", "mirrored:2", keras="3", **options)
