"""The GPUs of this machine, and which of them a task has for itself."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from distbench.cluster import ClusterSpec, Task
from distbench.errors import BadInputError

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""Which GPUs CUDA shows to a process, and in which order: numbers or UUIDs."""

SHARED_BY = "DISTBENCH_SHARE_GPUS"
"""How many replicas may share a GPU, one unless it is set."""

_GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"
"""Has TensorFlow take memory as it needs it: by itself a process takes nearly all that
a GPU has, and another one that wants some of the same GPU ends."""


def count_gpus() -> int:
    """Number of GPUs that TensorFlow would see; see `list_gpus`."""
    return len(list_gpus())


def list_gpus(devices: Path = Path("/dev")) -> tuple[str, ...]:
    """GPUs that TensorFlow would see, as `CUDA_VISIBLE_DEVICES` calls them.

    Asks nvidia-smi, or counts /dev/nvidia*, so that no driver is initialised in this
    process: a process that was forked afterwards could not use it. An empty or
    negative CUDA_VISIBLE_DEVICES hides GPUs, a list of names limits them.
    """
    present = _count_present(devices)
    visible = os.environ.get(VISIBLE)
    if visible is None:
        return tuple(map(str, range(present)))
    shown: dict[str, None] = {}
    for name in map(str.strip, visible.split(",")):
        # CUDA stops at the first name that it does not know.
        if name in shown or not name or name.startswith("-"):
            break
        if name.isdecimal() and int(name) >= present:
            break
        shown[name] = None
    return tuple(shown)[:present]


def count_sharers() -> int:
    """How many replicas may share each GPU.

    Raises:
        BadInputError: The variable that says so is no number of replicas.
    """
    text = os.environ.get(SHARED_BY, "1")
    if not re.fullmatch(r"[1-9][0-9]{0,2}", text):
        raise BadInputError(
            f"{SHARED_BY} says how many replicas share each GPU. "
            f"Expected a number from 1 to 999. Received: {text!r}."
        )
    return int(text)


def list_models() -> list[str]:
    """What kinds of GPU TensorFlow would see."""
    listed = _ask_for_gpus() or []
    return [_find_model(name, listed) for name in list_gpus()]


def assign_gpus(spec: ClusterSpec, task: Task, gpus: tuple[str, ...]) -> dict[str, str]:
    """The variables that give a task its own GPUs, and none to whoever only serves.

    Args:
        spec: The resolved cluster spec.
        task: One of its tasks.
        gpus: All that the cluster may use; as many as it needs at least.
    """
    if spec.device != "gpu":
        return {}
    first, each = task.index * spec.replicas_per_worker, spec.replicas_per_worker
    sharers = count_sharers()
    places = range(first, first + each) if task.role == "worker" else ()
    own = dict.fromkeys(gpus[place // sharers] for place in places)
    return {VISIBLE: ",".join(own) or "-1", _GROWTH: os.environ.get(_GROWTH, "true")}


def _find_model(name: str, listed: list[tuple[str, str]]) -> str:
    """The kind of a GPU, by its number or by how its UUID begins."""
    if name.isdecimal():
        return dict(enumerate(model for model, _ in listed)).get(int(name), "GPU")
    return next((model for model, uuid in listed if uuid.startswith(name)), "GPU")


def _count_present(devices: Path) -> int:
    listed = _ask_for_gpus()
    if listed is not None:
        return len(listed)
    return sum(path.name[6:].isdigit() for path in devices.glob("nvidia*"))


def _ask_for_gpus() -> list[tuple[str, str]] | None:
    """Model and UUID of all GPUs; None where nobody can be asked."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    try:
        listed = subprocess.run(
            [program, "-L"], capture_output=True, text=True, timeout=20, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None  # a broken driver: the device files say more
    return re.findall(
        r"^GPU (?:\d+: )?(.*?)(?: \(UUID: (.*)\))?$", listed, re.MULTILINE
    )
