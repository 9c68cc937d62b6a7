"""The fork server: imports once, then forks every task from itself.

Run as `python -m distbench.launch.forkserver CONTROL_FD`. The control socket keeps
packets apart (SOCK_SEQPACKET), so a packet is one JSON object:

- to the server, first: `{"preload": [modules]}`;
- from the server: `{"ready": true}`, `{"unfit": reason}` or `{"failed": traceback,
  "advice": what the machine lacks}`;
- to the server, for each task: `{"host": address}` with two descriptors, its channel
  and its log; its servers are kept on that address, and `""` lets them be;
- from the server: `{"forked": pid}` or `{"error": reason}`;
- from the server, whenever a task ends: `{"exited": pid, "status": wait status}`.

EOF on the control socket means that the bench is gone: the server ends its tasks and
itself. A fork copies only the calling thread, and locks that others held stay locked
for ever, so the server has one thread and proves it before the first fork.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import NoReturn

from distbench.errors import find_advice
from distbench.launch.bootstrap import (
    die_with_parent,
    import_all,
    run_task,
    wake_when_parent_dies,
)
from distbench.launch.driver import is_driver_initialised
from distbench.launch.process import TIDY_S
from distbench.launch.warden import Warden, confine

PACKET_BYTES = 1 << 16
"""No packet is longer: descriptors and pids are all that travels here."""
_FORKED_WELL = ("jemalloc_bg_thd",)
"""Threads whose library is ready for a fork: jemalloc, which pyarrow brings along and
pandas imports, takes its locks before one and goes on in the child without the thread
(`background_thread_postfork_child` in src/background_thread.c)."""
_PR_SET_CHILD_SUBREAPER = 36
_END_S = 3.0
_END_POLL_S = 0.01


def find_unfitness() -> str:
    """Why this process must not be forked, or `""`.

    A CUDA driver that has been initialised does not survive a fork.
    """
    threads = sorted(Path("/proc/self/task").iterdir(), key=lambda path: int(path.name))
    names = []
    for thread in threads:
        # One may end meanwhile. A library's own threads often say whose they are.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            names.append(thread.joinpath("comm").read_text().strip())
    names = [name for name in names if name not in _FORKED_WELL]
    if len(names) != 1:
        return (
            f"it has {len(names)} threads after the imports ({', '.join(names)}), and "
            "a fork needs one"
        )
    if is_driver_initialised():
        return "the CUDA driver was initialised by an import"
    return ""


class _Server:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: set[int] = set()
        self._children_list = Path(f"/proc/self/task/{os.getpid()}/children")
        # Groups whose task has ended, and until when what is left may live.
        self._tidying: dict[int, float] = {}
        self._wake, self._wake_writer = socket.socketpair()
        self._wake.setblocking(False)
        self._wake_writer.setblocking(False)
        arrivals, self._door = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._poll = select.poll()
        self._warden = Warden(self._poll, arrivals)

    def serve(self) -> None:
        """Fork and reap until the bench is gone."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_writer.fileno(), warn_on_full_buffer=False)
        for sock in (self._control, self._wake):
            self._poll.register(sock, select.POLLIN)
        try:
            while True:
                ready = dict(self._poll.poll(self._measure_wait()))
                for descriptor, event in ready.items():
                    self._warden.serve(descriptor, event)
                is_woken = self._wake.fileno() in ready
                if is_woken:
                    self._wake.recv(PACKET_BYTES)
                # Not after every bind: these look at all that lives.
                if is_woken or self._measure_wait() == 0:
                    self._reap()
                    self._end_strays()
                if self._control.fileno() in ready and not self._accept():
                    break
        except (BrokenPipeError, ConnectionResetError):
            pass  # the bench died while it was being written to
        finally:
            self._end_all()

    def _accept(self) -> bool:
        """Fork one task; False at EOF."""
        packet, ancillary, _, _ = self._control.recvmsg(
            PACKET_BYTES, socket.CMSG_LEN(2 * array.array("i").itemsize)
        )
        if not packet:
            return False
        received = array.array("i")
        for _, _, data in ancillary:
            received.frombytes(data)
        channel_fd, log_fd = received
        host = json.loads(packet)["host"]
        try:
            pid = self._fork(channel_fd, log_fd, host)
            answer: dict[str, object] = {"forked": pid}
        except OSError as error:
            answer = {"error": str(error)}
        # A copy left here would keep the channel open after the task's death, and
        # would be inherited by every later task.
        os.close(channel_fd)
        os.close(log_fd)
        self._send(answer)
        return True

    def _fork(self, channel_fd: int, log_fd: int, host: str) -> int:
        server = os.getpid()
        # No handler of the server may run in the child.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            pid = os.fork()
            if pid == 0:
                self._become_task(channel_fd, log_fd, host, server)
        finally:
            # Also where there are no more processes: it hears of the ends of tasks.
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        self._children.add(pid)
        self._tidying.pop(pid, None)  # of a task of long ago
        return pid

    def _become_task(
        self, channel_fd: int, log_fd: int, host: str, server: int
    ) -> NoReturn:
        try:
            os.setsid()
            die_with_parent(server)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            if host:
                confine(self._door, host)
            for own in (
                *(self._control, self._wake, self._wake_writer),
                *(self._door, self._warden),
            ):
                own.close()
            null = os.open(os.devnull, os.O_RDONLY)
            for source, target in ((null, 0), (log_fd, 1), (log_fd, 2)):
                os.dup2(source, target)
            os.close(null)
            os.close(log_fd)
            os.set_inheritable(channel_fd, False)
            run_task(channel_fd)
        finally:
            # Whatever went wrong, the server's loop must never run twice.
            os._exit(1)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                pid, status = ended
                if pid in self._children:
                    self._children.discard(pid)
                    if self._children_list.exists():
                        self._tidying[pid] = time.monotonic() + TIDY_S
                    else:  # not in every kernel: it cannot be seen when they are gone
                        _kill_group(pid)
                    self._send({"exited": pid, "status": status})

    def _measure_wait(self) -> float | None:
        """Milliseconds until something has to be killed, None if nothing has."""
        if not self._tidying:
            return None
        return 1000 * max(0.0, min(self._tidying.values()) - time.monotonic())

    def _end_strays(self) -> None:
        """Kill what tasks left behind, once it has had its time."""
        strays = self._list_children() - self._children
        groups = {_find_group(pid) for pid in strays}
        for group, until_s in list(self._tidying.items()):
            if group not in groups:
                del self._tidying[group]
            elif until_s <= time.monotonic():
                # One of it is a child of ours: the number is nobody else's.
                _kill_group(group)
                self._tidying[group] += TIDY_S
        if not self._children and not self._tidying:
            # Who left its group is nobody's: it stays as long as any task.
            self._kill_strays()

    def _list_children(self) -> set[int]:
        """Tasks, and what tasks have left behind."""
        with contextlib.suppress(OSError):
            return set(map(int, self._children_list.read_text().split()))
        return set()

    def _kill_strays(self) -> None:
        """Kill every child, where no task is among them."""
        for pid in self._list_children():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def _end_all(self) -> None:
        """End tasks and strays, whose own children then come up as strays."""
        for pid in self._children:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        begin = time.monotonic()
        while (now := time.monotonic()) < begin + _END_S:
            if now > begin + TIDY_S:
                self._kill_strays()
            try:
                if os.waitpid(-1, os.WNOHANG) == (0, 0):
                    time.sleep(_END_POLL_S)
            except ChildProcessError:
                return

    def _send(self, packet: dict[str, object]) -> None:
        self._control.send(json.dumps(packet).encode())


def _kill_group(pid: int) -> None:
    # It may have no group yet, or be out of reach of us after a setuid.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _adopt_strays() -> None:
    """Have this process become the parent of what tasks leave behind.

    A daemon leaves its task's group and session, and its parent; Linux then gives it
    to the next ancestor that asks for such.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _find_group(pid: int) -> int:
    with contextlib.suppress(OSError):
        return os.getpgid(pid)
    return 0


def main(control_fd: int) -> None:
    """Preload, say whether this process may be forked, and serve."""
    wake_when_parent_dies()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The thread that started it may have blocked what tells of the ends of tasks.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # Inherited by tasks: until their stack dump is registered, a request for one
    # must not kill them.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    _adopt_strays()
    with socket.socket(fileno=control_fd) as control:
        orders = json.loads(control.recv(PACKET_BYTES))
        try:
            import_all(orders["preload"])
            unfit = find_unfitness()
        except BaseException as error:  # noqa: BLE001 - it crosses to the bench
            report: dict[str, object] = {
                "failed": traceback.format_exc()[-8000:],
                "advice": find_advice(error),
            }
        else:
            report = {"unfit": unfit} if unfit else {"ready": True}
        control.send(json.dumps(report).encode())
        if "ready" in report:
            _Server(control).serve()


if __name__ == "__main__":
    main(int(sys.argv[1]))
