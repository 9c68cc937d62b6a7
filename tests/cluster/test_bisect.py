"""`distbench bisect` tells which phase another version of a library changed."""

from __future__ import annotations

import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from typer.testing import CliRunner

from distbench.cli import app
from distbench.environments import find_environment
from distbench.errors import BadInputError

pytestmark = pytest.mark.cluster

RIGHT = """\
import tf_keras


def make():
    return tf_keras.optimizers.legacy.SGD(0.25, clipnorm=0.125)
"""
WRONG = """\
import tensorflow as tf
import tf_keras


class Clipped(tf_keras.optimizers.legacy.SGD):
    def apply_gradients(self, grads_and_vars, name=None, **options):
        clipped = [(tf.clip_by_norm(g, 0.125), v) for g, v in grads_and_vars]
        return super().apply_gradients(clipped, name=name, **options)


def make():
    return Clipped(0.25)
"""


def make_environment(place: Path, version: str, source: str) -> Path:
    """A virtual environment with all that this one has, and a library of its own."""
    venv.create(place, with_pip=False, symlinks=True)
    (packages,) = place.glob("lib/python*/site-packages")
    ours = [sysconfig.get_path("purelib"), str(Path(__file__).parents[2])]
    (packages / "ours.pth").write_text("\n".join(ours))
    (packages / "clipping_library.py").write_text(source)
    about = packages / f"clipping_library-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: clipping-library\nVersion: {version}\n"
    )
    return place


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("environments")
    return {
        "good": make_environment(folder / "good", "1.0", RIGHT),
        "bad": make_environment(folder / "bad", "2.0", WRONG),
    }


def bisect(good: Path, bad: Path, *words: str) -> tuple[int, str]:
    line = ["bisect", "clipping_library:make", "--good", str(good), "--bad", str(bad)]
    result = CliRunner().invoke(app, [*line, "--workload", "linear", *words])
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.nightly
def test_the_phase_that_a_version_changed_is_told(environments: dict[str, Path]):
    code, text = bisect(**environments)
    assert code == 1, text
    assert "in another version: clipping-library 1.0 -> 2.0" in text
    assert f"good {environments['good']} pass" in text
    assert f"bad {environments['bad']} fail clip-before-reduction" in text
    one, cluster = text.split("on the cluster, A bad, B good")
    assert "on one device, A bad, B good" in one
    assert "Equal" in one
    assert "First difference: step 0, reduced_gradient of '" in cluster


@pytest.mark.nightly
def test_what_did_not_change_is_alike(environments: dict[str, Path]):
    code, text = bisect(environments["good"], environments["good"])
    assert code == 0, text
    assert "in another version: nothing" in text


def test_what_is_no_environment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="is no environment"):
        find_environment(tmp_path)
    venv.create(tmp_path / "empty", with_pip=False, symlinks=True)
    with pytest.raises(BadInputError, match="has no distbench"):
        find_environment(tmp_path / "empty")
    partly = tmp_path / "partly"
    partly.write_text("""#!/bin/sh
        case "$*" in *tensorflow*) echo '[["tensorflow"], {}]';; esac""")
    partly.chmod(0o700)
    with pytest.raises(BadInputError, match=r"no tensorflow.*pip install tensorflow"):
        find_environment(partly)
    false = tmp_path / "false"
    false.symlink_to("/bin/false")
    with pytest.raises(BadInputError, match="does not run"):
        find_environment(false)


def test_a_python_names_its_environment() -> None:
    assert find_environment(Path(sys.executable)).packages["distbench"]
