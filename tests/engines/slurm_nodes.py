"""Slurm on this machine: its daemons, started by hand, and three nodes on loopback."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

NODES = 3
GPUS_PER_NODE = 2
_READY_S = 60.0
_END_S = 10.0
_POLL_S = 0.1
_DAEMONS = ("munged", "slurmctld", "slurmd", "salloc")
_NULL_DEVICE = os.makedev(1, 3)


def find_lack() -> str:
    """What this machine lacks for it; empty for nothing."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "need root on Linux for Slurm's daemons, have neither or one"
    missing = [name for name in _DAEMONS if shutil.which(name) is None]
    return f"need {', '.join(missing)} (slurm-wlm, munge), have none" * bool(missing)


@contextmanager
def open_nodes() -> Iterator[dict[str, str]]:
    """The variables that a bench needs to use them."""
    with (
        ExitStack() as stack,
        # A socket's name must not be long.
        tempfile.TemporaryDirectory(prefix="slurm-", dir="/tmp") as name,
    ):
        folder = Path(name)
        _write_configuration(folder)
        environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        commands = [
            _make_munged(folder),
            ["slurmctld", "-D", "-i"],
            *(["slurmd", "-D", "-N", f"n{number}"] for number in _list_numbers()),
        ]
        for command in commands:
            output = stack.enter_context((folder / "output").open("ab"))
            daemon = subprocess.Popen(
                command, env=environment, stdout=output, stderr=output
            )
            stack.callback(_end, daemon)
            if command[0] == "munged":
                _wait_for((folder / "munge.socket").exists, folder)

        def is_idle() -> bool:
            done = subprocess.run(
                ["sinfo", "--noheader", "--format=%T %D"],
                env=environment,
                capture_output=True,
                text=True,
                timeout=_READY_S,
            )
            return done.stdout.split() == ["idle", str(NODES)]

        _wait_for(is_idle, folder)
        yield {"SLURM_CONF": environment["SLURM_CONF"]}


def _list_numbers() -> range:
    return range(1, NODES + 1)


def _make_munged(folder: Path) -> list[str]:
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    files = {
        "key-file": key,
        "socket": folder / "munge.socket",
        "pid-file": folder / "munge.pid",
        "log-file": folder / "munge.log",
        "seed-file": folder / "munge.seed",
    }
    options = [f"--{name}={place}" for name, place in files.items()]
    return ["munged", "--foreground", "--force", *options]


def _write_configuration(folder: Path) -> None:
    host = socket.gethostname()
    controller, *ports = _find_ports(NODES + 1)
    lines = [
        "ClusterName=test",
        f"SlurmctldHost={host}(127.0.0.1)",
        f"SlurmctldPort={controller}",
        "AuthType=auth/munge",
        f"AuthInfo=socket={folder}/munge.socket",
        "SlurmUser=root",
        "SlurmdUser=root",
        f"StateSaveLocation={folder}/state",
        f"SlurmdSpoolDir={folder}/spool-%n",
        f"SlurmctldPidFile={folder}/slurmctld.pid",
        f"SlurmdPidFile={folder}/%n.pid",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "SlurmdParameters=config_overrides",
        "SwitchType=switch/none",
        "MpiDefault=none",
        "ReturnToService=2",
        "KillWait=2",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_CPU",
        "AccountingStorageType=accounting_storage/none",
        "JobAcctGatherType=jobacct_gather/none",
        "GresTypes=gpu",
        *(
            f"NodeName=n{number} NodeHostname={host} NodeAddr=127.0.0.{10 + number} "
            f"Port={port} CPUs=4 RealMemory=4000 Gres=gpu:fake:{GPUS_PER_NODE}"
            for number, port in zip(_list_numbers(), ports, strict=True)
        ),
        f"PartitionName=all Nodes=n[1-{NODES}] Default=YES MaxTime=INFINITE State=UP",
    ]
    (folder / "slurm.conf").write_text("\n".join([*lines, ""]))
    (folder / "state").mkdir()
    for number in _list_numbers():
        (folder / f"spool-n{number}").mkdir()
    # Devices that are there, and are no GPUs.
    for number in range(GPUS_PER_NODE):
        os.mknod(folder / f"gpu{number}", 0o20600, _NULL_DEVICE)
    gpus = f"{folder}/gpu[0-{GPUS_PER_NODE - 1}]"
    shares = [f"NodeName=n{n} Name=gpu Type=fake File={gpus}" for n in _list_numbers()]
    (folder / "gres.conf").write_text("\n".join([*shares, ""]))


def _find_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        listeners = [
            stack.enter_context(socket.create_server(("", 0))) for _ in range(count)
        ]
        return [listener.getsockname()[1] for listener in listeners]


def _wait_for(condition: object, folder: Path) -> None:
    assert callable(condition)
    deadline_s = time.monotonic() + _READY_S
    while not condition():
        if time.monotonic() > deadline_s:
            said = (folder / "output").read_text(errors="replace")[-4000:]
            raise TimeoutError(f"Slurm did not come up in {_READY_S:g} s:\n{said}")
        time.sleep(_POLL_S)


def _end(daemon: subprocess.Popen[bytes]) -> None:
    daemon.terminate()
    try:
        daemon.wait(_END_S)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()
