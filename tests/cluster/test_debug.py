"""`distbench debug` stops in the task that has a wrong number, in the user's code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster

CLIPPED = """\
import tensorflow as tf
import tf_keras


class Clipped(tf_keras.optimizers.legacy.SGD):
    def apply_gradients(self, grads_and_vars, name=None, **options):
        clipped = [(tf.clip_by_norm(g, 0.125), v) for g, v in grads_and_vars]
        return super().apply_gradients(clipped, name=name, **options)

    def _resource_apply_dense(self, grad, var, apply_state=None):
        change = 0.25 * grad
        return var.assign_sub(change)


def make():
    return Clipped(0.25)
"""


@pytest.fixture
def subject(tmp_path: Path) -> str:
    file = tmp_path / "clipped.py"
    file.write_text(CLIPPED)
    return f"{file}:make"


def debug(typed: str, *words: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "distbench", "debug", *words],
        input=typed,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.returncode, done.stdout + done.stderr


def test_it_stops_at_the_value_and_steps_into_the_users_code(subject: str) -> None:
    code, text = debug(
        "p tap.ratio\ns\nn\nn\np float(tf.reduce_sum(change / grad)) / 6\nc\n",
        *(subject, "-c", "mirrored:2", "--replica", "1"),
        *("--phase", "applied_gradient", "--variable", "kernel"),
    )
    assert code == 0, text
    assert "step 0, applied_gradient of 'kernel', replica 1" in text
    ratio = re.search(r"^\(Pdb\) ([0-9.]+)$", text, re.MULTILINE)
    assert ratio is not None
    assert 1 < float(ratio[1]) < 2
    assert "clipped.py(10)_resource_apply_dense()" in text
    assert "-> return var.assign_sub(change)" in text
    assert "(Pdb) 0.25" in text


@pytest.mark.nightly
def test_a_share_is_shown_once_beside_the_whole_batch(subject: str) -> None:
    words = (subject, "-c", "mirrored:2", "--variable", "kernel", "--phase")
    code, text = debug("p tap.of_all.shape\nc\nc\n", *words, "local_gradient")
    assert code == 0, text
    assert re.search(r"one device .*, of the same examples\n.*\n  whole batch", text)
    assert "(Pdb) (3, 2)" in text
    # Past two taps of the family, and no share any more.
    code, text = debug("c\nc\nc\n", *words, "reduced_gradient")
    assert code == 0, text
    assert text.count("step 0, reduced_gradient of 'kernel'") == 1
    assert "whole batch" not in text


@pytest.mark.nightly
def test_after_the_step_no_code_of_the_users_is_promised(subject: str) -> None:
    words = ("-c", "mirrored:2", "--variable", "kernel", "--phase", "variable")
    code, text = debug("c\n", subject, *words)
    assert code == 0, text
    assert "The step is over: none of its code follows, 'c' goes on." in text
    assert "steps into your code" not in text


@pytest.mark.nightly
def test_a_value_that_does_not_come_by_is_bad_usage(subject: str) -> None:
    code, text = debug("", subject, "--variable", "nothing", "-c", "mirrored:2")
    assert code == 2
    assert "No value came by: step 0, local_gradient of 'nothing', replica 0" in text
    assert "local_gradient of 'kernel'" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-c", "ps:2+1"), "has no step that can be stopped"),
        (("--replica", "2"), "replicas 0 to 1. Received: 2"),
    ],
    ids=["ps", "replica"],
)
@pytest.mark.nightly
def test_what_cannot_be_stopped_is_refused(subject, words, message: str) -> None:
    code, text = debug("", subject, *words)
    assert code == 2
    assert re.search(message, text)
