"""`distbench check --watch` checks again when the subject is saved."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from pathlib import Path
from threading import Timer

import pytest

pytestmark = pytest.mark.cluster

RIGHT = """\
import tf_keras


class Averaging(tf_keras.optimizers.legacy.SGD):
    def apply_gradients(self, grads_and_vars, name=None, **options):
        return super().apply_gradients(grads_and_vars, name=name, **options)


def make():
    return Averaging(0.25)
"""
WRONG = RIGHT.replace("name=name, **options", "experimental_aggregate_gradients=False")
_TIMEOUT_S = 300


def test_each_save_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "subject.py"
    file.write_text(RIGHT)
    words = ("check", f"{file}:make", "-c", "mirrored:2", "--workload", "linear")
    command = [sys.executable, "-m", "distbench", *words, "--watch"]
    with contextlib.ExitStack() as stack:
        bench = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        stack.enter_context(bench)
        deadline = Timer(_TIMEOUT_S, bench.kill)
        stack.callback(deadline.cancel)
        deadline.start()

        def read_round() -> str:
            assert bench.stderr is not None
            lines = []
            for line in bench.stderr:
                if "waiting for a change" in line:
                    break
                lines.append(line)
            return "".join(lines)

        assert "[bounded]: pass" in read_round()
        file.write_text(WRONG)
        assert "[bounded]: fail" in read_round()
        # Who starts pytest in the background has it, and its children, ignore Ctrl-C.
        bench.send_signal(signal.SIGTERM)
        assert bench.stdout is not None
        printed = bench.stdout.read()
        assert bench.wait() == 128 + signal.SIGTERM
    assert "1. missing-reduction" in printed
