"""Can this machine run the bench, and if not, why."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from distbench.errors import BadInputError, ClusterError
from distbench.gpus import SHARED_BY, VISIBLE, count_gpus
from distbench.machine import SERVER_BYTES, TASK_BYTES, count_cores, measure_memory

_NEEDED_BYTES = SERVER_BYTES + 2 * TASK_BYTES
_FREE_DISK_BYTES = 200 * 2**20
_LIST_GPUS = (
    "import tensorflow as tf; print(len(tf.config.list_physical_devices('GPU')))"
)
_TRY_S = 60.0
_TOLD = 200
_SPACE_BYTES = 3 * 2**30
"""Address space of a task: TensorFlow maps 2.5 GB, and touches little of it."""
_THREADS = 500
"""What a cluster of two workers and the task of one device start together: a worker has
110 on two cores."""
_MINOR_VERSIONS = range(10, 14)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of the doctor's report.

    Attributes:
        name: What was looked at.
        ok: Whether the bench can work with it.
        found: What was found, or why it is not enough and what to do.
    """

    name: str
    ok: bool
    found: str


Probe = Callable[[], Iterable[Check]]


def examine_machine(probes: Iterable[Probe] | None = None) -> Iterator[Check]:
    """Look at everything that a run depends on, the cheap things first."""
    for probe in PROBES if probes is None else probes:
        yield from probe()


def check_system() -> Iterator[Check]:
    """Operating system and Python."""
    supported = sys.platform in ("linux", "darwin")
    yield Check(
        name="system",
        ok=supported,
        found=f"{platform.system()} {platform.release()} {platform.machine()}"
        + ("" if supported else "; expected Linux or macOS: use WSL or a container"),
    )
    version = platform.python_version()
    known = sys.version_info[0] == 3 and sys.version_info[1] in _MINOR_VERSIONS
    yield Check(
        name="python",
        ok=known,
        found=f"{version} at {sys.executable}"
        + ("" if known else "; expected 3.10 to 3.13"),
    )


def check_packages() -> Iterator[Check]:
    """Versions, read from the installation; nothing is imported."""
    versions: dict[str, str] = {}
    for name in ("tensorflow", "tf_keras", "keras", "numpy"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found = f"not installed in {sys.prefix}: pip install {name}"
            yield Check(name=name, ok=False, found=found)
            continue
        yield Check(name=name, ok=True, found=versions[name])
    pair = [versions.get(name, "") for name in ("tensorflow", "tf_keras")]
    minors = [version.split(".")[:2] for version in pair]
    if all(pair) and minors[0] != minors[1]:
        yield Check(
            name="tf_keras matches",
            ok=False,
            found=f"tensorflow {pair[0]} needs tf_keras "
            f"{'.'.join(minors[0])}, have {pair[1]}: "
            f"pip install 'tf_keras~={'.'.join(minors[0])}.0'",
        )
    yield Check(
        name="TF_USE_LEGACY_KERAS",
        ok=True,
        found=os.environ.get("TF_USE_LEGACY_KERAS", "not set: tf.keras is Keras 3"),
    )


def check_resources() -> Iterator[Check]:
    """Cores, memory, disk, GPUs."""
    yield Check(name="cores", ok=True, found=str(count_cores()))
    yield _check_space("memory", *measure_memory(), _NEEDED_BYTES)
    folders: dict[str, Path] = {}
    try:
        folders["temporary folder"] = Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        found = f"{error}; set TMPDIR to a folder that you can write to"
        yield Check(name="temporary folder", ok=False, found=found)
    if Path("/dev/shm").is_dir():
        folders["shared memory"] = Path("/dev/shm")
    for name, folder in folders.items():
        usage = shutil.disk_usage(folder)
        # NCCL alone needs shared memory; the bench's own files are in the first one.
        needed = _FREE_DISK_BYTES if name == "temporary folder" else 0
        yield _check_space(f"{name} {folder}", usage.free, usage.total, needed)
    yield Check(
        name="GPUs",
        ok=True,
        found=" ".join(
            [
                str(count_gpus()),
                *(
                    f"({name}={os.environ[name]!r})"
                    for name in (VISIBLE, SHARED_BY)
                    if name in os.environ
                ),
            ]
        ),
    )


def check_found_gpus() -> Iterator[Check]:
    """Whether TensorFlow finds the driver's GPUs; another process looks."""
    listed = count_gpus()
    if not listed or find_spec("tensorflow") is None:
        return
    name = "GPUs in TensorFlow"
    command = [sys.executable, "-c", _LIST_GPUS]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TRY_S)
    except (OSError, subprocess.SubprocessError) as error:
        yield Check(name=name, ok=False, found=str(error))
        return
    count = done.stdout.strip()
    advice = "pip install 'tensorflow[and-cuda]' brings CUDA's libraries"
    is_same = count == str(listed)
    yield Check(
        name=name,
        ok=is_same,
        found=count if is_same else f"{count or 'none'} of {listed}: {advice}",
    )


def check_limits() -> Iterator[Check]:
    """What a process of this user may take; TensorFlow aborts where it gets no more."""
    try:
        import resource
    except ImportError:
        return  # there are none on such a system
    limits = {
        "ulimit -v": (resource.RLIMIT_AS, 2**10, _SPACE_BYTES),
        "ulimit -u": (resource.RLIMIT_NPROC, 1, 0 if os.geteuid() == 0 else _THREADS),
    }
    lacks = []
    for name, (number, unit, needed) in limits.items():
        given, _ = resource.getrlimit(number)
        if given != resource.RLIM_INFINITY and given < needed:
            lacks.append(f"'{name}' is {given // unit}; need {needed // unit}")
    found = "; ".join(lacks) or "leave room for the tasks of a cluster"
    yield Check(name="limits", ok=not lacks, found=found)


def check_ports() -> Iterator[Check]:
    """Whether a server can listen on the loopback interface."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port), timeout=5):
                pass
    except OSError as error:
        found = f"127.0.0.1 cannot be used: {error}; a sandbox or firewall forbids it"
        yield Check(name="ports", ok=False, found=found)
        return
    yield Check(name="ports", ok=True, found="127.0.0.1 takes servers and connections")


def check_listening() -> Iterator[Check]:
    """Whether TensorFlow's servers can be kept off the network."""
    from distbench.launch.tf_config import LOOPBACK

    told = _try_listening()
    found = f"TensorFlow's servers are kept on {LOOPBACK}"
    if told != LOOPBACK:
        found = (
            "TensorFlow's servers listen on every interface, and know no "
            f"authentication, since they cannot be kept on {LOOPBACK}: {told}"
        )
    yield Check(name="listening", ok=True, found=found)


def _try_listening() -> str:
    """What `distbench.launch.confined` says, in a process that it may spoil."""
    command = [sys.executable, "-m", "distbench.launch.confined"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TRY_S)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return done.stdout.strip() or done.stderr.strip()[-_TOLD:]


def check_fork_server() -> Iterator[Check]:
    """Whether all that tasks import can be imported once and tasks forked from it."""
    from distbench.launch.forkclient import UnfitError
    from distbench.launch.servers import get_fork_server
    from distbench.launch.surroundings import choose_start
    from distbench.preloading import PRELOADS

    name = "fork server"
    if find_spec("tensorflow") is None:
        # The server does without a module that it does not find.
        found = "TensorFlow, which it would import, is not installed"
        yield Check(name=name, ok=False, found=found)
        return
    try:
        if choose_start(None) == "spawn":
            found = "not used on this system; tasks are spawned, which is slower"
            yield Check(name=name, ok=True, found=found)
            return
        get_fork_server(PRELOADS, {}).wait_ready()
    except UnfitError as error:
        found = f"not used, tasks are spawned, which is slower: {error}"
        yield Check(name=name, ok=True, found=found)
    except (ClusterError, BadInputError, OSError) as error:
        yield Check(name=name, ok=False, found=str(error))
    else:
        found = "imports TensorFlow and stays fit to fork"
        yield Check(name=name, ok=True, found=found)


PROBES: tuple[Probe, ...] = (
    check_system,
    check_packages,
    check_resources,
    check_limits,
    check_ports,
    check_listening,
    check_fork_server,
    check_found_gpus,
)


def _check_space(name: str, free: int, total: int, needed: int) -> Check:
    text = f"{free / 2**30:.1f} GiB free of {total / 2**30:.1f} GiB"
    short = free < needed
    return Check(
        name=name,
        ok=not short,
        found=text + (f"; need {needed / 2**30:.1f} GiB" if short else ""),
    )
