"""Tasks for the tests of the launcher; imported by the tasks, so it stays light."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

from distbench.launch.channel import TaskChannel
from distbench.launch.notes import Notes
from distbench.launch.task import TaskContext, serve


class PortLostError(OSError):
    pass


class UnspeakableError(Exception):
    def __str__(self) -> str:
        return str(1 / 0)


class UntouchableError(Exception):
    def __getattribute__(self, name: str) -> object:
        return 1 / 0


def run(channel: TaskChannel, context: TaskContext) -> None:
    jobs = Jobs(channel, context)
    names = [name for name in vars(Jobs) if not name.startswith("_")]
    serve(channel, {name: getattr(jobs, name) for name in names}, classify=classify)


def classify(error: BaseException) -> Mapping[str, Any]:
    kind = {ValueError: "subject", PortLostError: "port"}.get(type(error), "bench")
    return {"kind": kind, "replica": 7}


def raise_at_once(channel: TaskChannel, context: TaskContext) -> None:
    raise RuntimeError("no worker today")


def end_at_once(channel: TaskChannel, context: TaskContext) -> None:
    print("the entry returns")


class Jobs:
    def __init__(self, channel: TaskChannel, context: TaskContext) -> None:
        self._channel = channel
        self._context = context

    def echo(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"task": str(self._context.task), **payload}

    def describe(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        links = _read_descriptors()
        return {
            "pid": os.getpid(),
            "session": os.getsid(0),
            "group": os.getpgid(0),
            "environment": dict(os.environ),
            "sys_path": sys.path,
            "cwd": str(Path.cwd()),
            "stdin": links[0],
            "sockets": sum(link.startswith("socket:") for link in links),
            "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
            "interruptible": signal.getsignal(signal.SIGINT)
            is signal.default_int_handler,
            "spec": self._context.spec,
            "folder": str(self._context.folder),
            "addresses": self._context.addresses,
        }

    def make_file(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Make a temporary file that nothing removes."""
        if "environment" in payload:
            os.environ.clear()
            os.environ.update(payload["environment"])
        descriptor, name = tempfile.mkstemp()
        os.close(descriptor)
        return {"name": name}

    def write(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        place = Path(payload["folder"]) / f"{self._context.task}.txt"
        place.write_text(payload["text"])
        return {"path": str(place), "nested": json.dumps({"path": str(place)})}

    def read(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        folder = Path(json.loads(payload["nested"])["folder"])
        return {path.name: path.read_text() for path in sorted(folder.iterdir())}

    def take_memory(self, payload: Mapping[str, Any]) -> None:
        taken = b"x" * payload["size_bytes"]
        while taken:
            signal.pause()

    def report(self, payload: Mapping[str, Any]) -> None:
        self._channel.report_progress(step=4, phase="loss")
        self._channel.report_progress(step=5)

    def fail(self, payload: Mapping[str, Any]) -> None:
        print("about to fail", flush=True)
        self._channel.report_progress(step=2, phase="slot")
        raise ValueError("a bad subject")

    def mixed(self, payload: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Another job for each task."""
        own = payload[str(self._context.task)]
        result: Mapping[str, Any] | None = getattr(self, own["do"])(own)
        return result

    def raise_unspeakable(self, payload: Mapping[str, Any]) -> None:
        raise UnspeakableError

    def raise_untouchable(self, payload: Mapping[str, Any]) -> None:
        raise UntouchableError

    def raise_at_length(self, payload: Mapping[str, Any]) -> None:
        raise ValueError("begin" + payload.get("text", "x") * payload["length"] + "end")

    def print(self, payload: Mapping[str, Any]) -> None:
        print(payload["text"])

    def leave(self, payload: Mapping[str, Any]) -> None:
        sys.exit("leaving")

    def exit(self, payload: Mapping[str, Any]) -> None:
        for number in range(100):
            print("line", number)
        os._exit(3)

    def kill(self, payload: Mapping[str, Any]) -> None:
        Notes(self._context.notes).add("collective 7, all_reduce")
        os.kill(os.getpid(), signal.SIGKILL)

    def stop(self, payload: Mapping[str, Any]) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)
        self.wait(payload)

    def wait(self, payload: Mapping[str, Any]) -> None:
        self._channel.report_progress(step=1, phase="loss")
        while True:
            signal.pause()

    def compute(self, payload: Mapping[str, Any]) -> None:
        """Take processor time: seconds, which are longer where others take some."""
        while time.process_time() < payload["seconds"]:
            pass

    def wait_stubbornly(self, payload: Mapping[str, Any]) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self.wait(payload)

    def coordinate(self, payload: Mapping[str, Any]) -> None:
        """Report steps; after each wait until a task is as the payload says.

        `states` has a letter of /proc/PID/stat for each step, `""` for one that does
        not matter, `gone`, or `back` once the task has been started a second time.
        """
        for step, state in enumerate(payload["states"]):
            self._channel.report_progress(step=step, phase=payload["phase"])
            until_s = time.monotonic() + 20
            while state and self._read_state(payload) != state:
                if time.monotonic() > until_s:
                    raise TimeoutError(f"step {step}: it is not {state}")
                time.sleep(0.005)

    def take_steps(self, payload: Mapping[str, Any]) -> None:
        for step in range(3):
            waits = step in payload["waits"]
            self._channel.report_progress(step=step, phase="bounded", waits=waits)

    def _read_state(self, payload: Mapping[str, Any]) -> str:
        tries = self._context.folder / f"{payload['victim']}.tries"
        if tries.exists() and len(tries.read_text().splitlines()) > 1:
            return "back"
        try:
            text = Path(f"/proc/{payload['pid']}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return "gone"
        state = text.rpartition(")")[2].split()[0]
        return "gone" if state == "Z" else state

    def start_grandchild(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"pid": subprocess.Popen(["sleep", "600"]).pid}

    def share_memory(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Shared memory that nobody unlinks; Python's tracker does in the end."""
        return {"name": SharedMemory(create=True, size=1).name}

    def fork(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Both come back from this, and the child first."""
        pid = os.fork()
        if pid != 0:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        return {"child": pid}

    def listen(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Where sockets end up, by what they ask for; bound by a thread."""
        found: dict[str, Any] = {}
        thread = threading.Thread(target=_bind_all, args=(found,))
        thread.start()
        thread.join()
        command = [sys.executable, "-c", _BIND_ONE]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return {**found, "of a child": done.stdout.strip()}

    def listen_nowhere(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """What Linux says of binds and options that are none."""
        libc = ctypes.CDLL(None, use_errno=True)
        found = []
        with socket.socket(socket.AF_INET6) as sock:
            for number, at, size in (
                (sock.fileno(), ctypes.c_void_p(-1), 28),
                (sock.fileno(), ctypes.c_void_p(1), 28),
                (sock.fileno(), b"", 0),
                (sock.fileno(), b"\n", 2),
                (999, bytes(28), 28),
                (-1, bytes(28), -1),
            ):
                for call in (
                    lambda *place: libc.bind(*place),
                    lambda number, at, size: libc.setsockopt(
                        number, socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, at, size
                    ),
                ):
                    ctypes.set_errno(0)
                    found.append(call(number, at, size) and ctypes.get_errno())
        return {"errors": found}

    def listen_on_and_on(self, payload: Mapping[str, Any]) -> None:
        for _ in range(4):
            threading.Thread(target=_bind_on_and_on, daemon=True).start()
        self.wait(payload)

    def leave_listener(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """A daemon that binds once somebody has written to a pipe with a name."""
        script = (
            f"import sys\nopen(sys.argv[1]).read()\n"
            f"try:\n  {_BIND_ONE.replace('print(', 'told = (')}\n"
            "except OSError as error: told = error.strerror\n"
            "open(sys.argv[2], 'w').write(told)"
        )
        command = [sys.executable, "-c", script, payload["asked"], payload["told"]]
        return {"pid": subprocess.Popen(command, start_new_session=True).pid}

    def leave_daemon(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """A process in a session of its own, whose parent has ended."""
        start = (
            "import subprocess as s; print(s.Popen(['sleep', '600'], "
            "stdout=s.DEVNULL, stderr=s.DEVNULL).pid)"
        )
        command = [sys.executable, "-c", start]
        done = subprocess.run(
            command, start_new_session=True, capture_output=True, check=True
        )
        return {"pid": int(done.stdout)}

    def garble(self, payload: Mapping[str, Any]) -> None:
        os.write(self._channel._sock.fileno(), payload["text"].encode())
        signal.pause()

    def close_descriptors(self, payload: Mapping[str, Any]) -> None:
        os.closerange(3, 1000)
        raise ValueError("nobody hears this")

    def fill_disk(self, payload: Mapping[str, Any]) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def steer(self, payload: Mapping[str, Any]) -> None:
        print("\x1b[2Jred\u202e")
        raise ValueError("\x1b]0;title\x07")

    def return_no_json(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"value": object()}

    def bind(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Lose the port as often as the payload says, counted in a file."""
        ports = json.dumps(self._context.addresses)
        with (self._context.folder / f"{self._context.task}.tries").open("a+") as tries:
            print(ports, file=tries)
            tries.seek(0)
            if len(tries.readlines()) <= payload["failures"]:
                raise PortLostError("address already in use")
        return {}


_BIND_ONE = "import socket; print(socket.create_server(('', 0)).getsockname()[0])"


def _bind_all(found: dict[str, Any]) -> None:
    v4, v6 = socket.AF_INET, socket.AF_INET6
    stream, datagrams = socket.SOCK_STREAM, socket.SOCK_DGRAM
    for name, family, kind, asked, alone in (
        ("every interface", v4, stream, "0.0.0.0", 0),
        ("every interface, both families", v6, stream, "::", 0),
        ("every interface by way of IPv6", v6, stream, "::ffff:0.0.0.0", 0),
        ("every interface of IPv6", v6, stream, "::", 1),
        ("another address", v4, stream, "127.0.0.9", 0),
        ("datagrams", v4, datagrams, "0.0.0.0", 0),
    ):
        with socket.socket(family, kind) as sock:
            if family == v6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, alone)
            sock.bind((asked, 0))
            found[name] = sock.getsockname()[0]


def _bind_on_and_on() -> None:
    while True:
        socket.create_server(("", 0)).close()


def _read_descriptors() -> list[str]:
    """What the open descriptors are, by number; the listing's own is gone by then."""
    descriptors = sorted(Path("/proc/self/fd").iterdir(), key=lambda fd: int(fd.name))
    return [str(fd.readlink()) for fd in descriptors if fd.is_symlink()]
