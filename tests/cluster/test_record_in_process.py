"""What a recorder refuses in this process, and what it leaves behind."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import distbench
from distbench.errors import BadInputError

pytestmark = pytest.mark.cluster


def test_what_cannot_be_watched_leaves_the_process_as_it_was(tmp_path: Path) -> None:
    import tensorflow as tf
    import tf_keras

    class Closed(tf_keras.optimizers.legacy.SGD):
        @property
        def apply_gradients(self):
            raise LookupError("closed")

    before = tf.GradientTape.gradient
    optimizers = [tf_keras.optimizers.legacy.SGD(0.1), Closed(0.1)]
    with (
        pytest.raises(LookupError, match="closed"),
        distbench.record(None, optimizers, folder=str(tmp_path / "trace")),
    ):
        pass
    assert tf.GradientTape.gradient is before
    assert not {"apply_gradients", "_aggregate"} & set(vars(optimizers[0]))


def test_what_a_recorder_cannot_take_is_refused_at_entry(tmp_path: Path) -> None:
    import tensorflow as tf
    import tf_keras

    (tmp_path / "file.py").touch()
    optimizer = tf_keras.optimizers.SGD(0.1)
    for given, words in (
        ({"folder": tmp_path / "file.py"}, "cannot be made: file exists"),
        ({"folder": tmp_path / "file.py" / "x"}, "cannot be made: not a directory"),
        ({"folder": "/proc/x"}, "cannot be made: no such file or directory"),
        ({"folder": 3}, "folder must be a path. Received: 3"),
        ({"every": None}, "every must be a whole number. Received: None"),
        ({"steps": 0}, "steps must be a number from 1"),
        ({"variables": 3}, "an object of type 'int'."),
        ({"variables": [3]}, "an object of type 'int' in it"),
        ({"variables": tf.Variable(1.0)}, "variables must be a list of variables"),
    ):
        folder = {"folder": tmp_path / "trace"}
        with (
            pytest.raises(BadInputError, match=re.escape(words)),
            distbench.record(None, optimizer, **{**folder, **given}),
        ):
            pass
    assert [path.name for path in tmp_path.iterdir()] == ["file.py"]


def test_a_job_that_was_not_recorded_leaves_no_folder(tmp_path: Path) -> None:
    import tf_keras

    optimizer = tf_keras.optimizers.SGD(0.1)
    folder = tmp_path / "several" / "traces"
    with (
        pytest.raises(BadInputError, match="No step was recorded"),
        distbench.record(None, optimizer, folder=folder),
    ):
        assert folder.is_dir()
    assert not any(tmp_path.iterdir())
    folder.mkdir(parents=True)  # what was there before stays
    with pytest.raises(KeyError), distbench.record(None, optimizer, folder=folder):
        raise KeyError
    assert folder.is_dir()


def test_a_folder_stays_where_it_was_when_the_loop_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tensorflow as tf
    import tf_keras

    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    optimizer, variable = tf_keras.optimizers.legacy.SGD(0.1), tf.Variable(1.0)
    with distbench.record(None, optimizer, folder="trace", steps=None) as recorder:
        optimizer.apply_gradients([(tf.constant(1.0), variable)])
        monkeypatch.chdir(tmp_path / "other")
        optimizer.apply_gradients([(tf.constant(1.0), variable)])
        shutil.rmtree(tmp_path / "trace")
        with pytest.warns(RuntimeWarning, match="moved or removed") as told:
            optimizer.apply_gradients([(tf.constant(1.0), variable)])
    assert "room" not in str(told[0].message)
    assert recorder.folder == tmp_path / "trace"
    assert recorder.recorded == [0, 1]
    assert not any((tmp_path / "other").iterdir())
