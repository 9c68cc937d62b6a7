"""Ports are free when they are handed out, and nobody else's until they come back."""

from __future__ import annotations

import errno
import json
import socket
import subprocess
import sys

import portpicker
import pytest

from distbench.errors import ClusterError
from distbench.launch.ports import is_bindable, lease_ports


def test_leased_ports_are_distinct_and_free() -> None:
    with lease_ports(8) as lease:
        assert len(set(lease.ports)) == 8
        assert all(is_bindable(port) for port in lease.ports)


def test_no_port_is_leased_for_a_single_process() -> None:
    with lease_ports(0) as lease:
        assert lease.ports == ()


def test_a_loopback_interface_that_is_down_is_told_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Cut(socket.socket):
        def connect(self, address: object) -> None:
            raise OSError(errno.ENETUNREACH, "Network is unreachable")

    monkeypatch.setattr("distbench.launch.ports.socket.socket", Cut)
    lease_ports(0).close()  # of a single process nobody asks for it
    with pytest.raises(ClusterError, match=r"no way to 127.0.0.1.*unreachable"):
        lease_ports(2)


def test_a_port_in_use_is_not_free() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        assert not is_bindable(server.getsockname()[1])


def test_a_leased_port_is_not_leased_again_until_it_is_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = lease_ports(1)
    (port,) = first.ports
    monkeypatch.setattr(portpicker, "pick_unused_port", lambda: port)
    with pytest.raises(ClusterError, match=r"not enough free ports.*Expected: 1"):
        lease_ports(1)
    first.close()
    with lease_ports(1) as second:
        assert second.ports == (port,)


_LEASER = """
import json, sys
from distbench.launch.ports import lease_ports
import portpicker
# Everybody is offered the same few ports in the same order.
offers = iter(json.loads(sys.argv[1]) * 50)
portpicker.pick_unused_port = lambda: next(offers)
lease = lease_ports(4)
print(json.dumps(lease.ports), flush=True)
sys.stdin.read()
"""


def test_leases_of_other_processes_never_collide_and_end_with_them() -> None:
    with lease_ports(8) as offers:
        command = [sys.executable, "-c", _LEASER, json.dumps(offers.ports)]
    leasers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    try:
        outputs = [leaser.stdout for leaser in leasers]
        leased = [json.loads(output.readline()) for output in outputs if output]
        assert sorted(leased[0] + leased[1]) == sorted(offers.ports)
    finally:
        for leaser in leasers:
            leaser.kill()
            leaser.communicate()
    third = subprocess.run(command, input=b"", capture_output=True, check=True)
    assert set(json.loads(third.stdout)) <= set(offers.ports)
