"""Ports are free when they are handed out, and nobody else's until they come back."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys

import portpicker
import pytest

from distbench.errors import ClusterError
from distbench.launch import ports
from distbench.launch.ports import is_bindable, lease_ports

OWN = f"127.77.{os.getpid() % 256}.{os.getpid() // 256 % 250 + 1}"
"""A loopback address on which nobody else looks for ports that are free."""


@pytest.fixture(autouse=True)
def loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "LOOPBACK", OWN)


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
    with pytest.raises(ClusterError, match=r"no way to 127\..*unreachable"):
        lease_ports(2)


def offer(
    numbers: list[int],
    monkeypatch: pytest.MonkeyPatch,
    then: type[BaseException] = portpicker.NoFreePortFoundError,
) -> list[int]:
    """Have these ports be chosen, then raise; returns those that are given back."""
    given: list[int] = []
    offers = iter(numbers)

    def pick() -> int:
        port = next(offers, None)
        if port is None:
            raise then
        return port

    monkeypatch.setattr(portpicker, "pick_unused_port", pick)
    monkeypatch.setattr(portpicker, "return_port", given.append)
    return given


def test_a_port_that_a_server_has_is_not_leased(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may have come since the port was chosen."""
    with lease_ports(1) as lease, socket.socket() as server:
        (free,) = lease.ports
        server.bind((OWN, 0))
        server.listen()
        taken = server.getsockname()[1]
        assert not is_bindable(taken)
        lease.close()
        offer([taken, free, taken], monkeypatch)
        with lease_ports(1) as other:
            assert other.ports == (free,)
        with pytest.raises(ClusterError, match="Received: 0"):
            lease_ports(1)
    # Nor is it held against others once the server has gone.
    offer([taken], monkeypatch)
    with lease_ports(1) as other:
        assert other.ports == (taken,)


@pytest.mark.parametrize(
    ("then", "raised"),
    [
        (portpicker.NoFreePortFoundError, ClusterError),
        (KeyboardInterrupt, KeyboardInterrupt),
    ],
)
def test_no_port_is_held_where_not_all_can_be_had(
    then: type[BaseException],
    raised: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with lease_ports(1) as lease:
        (port,) = lease.ports
    given = offer([port], monkeypatch, then)
    with pytest.raises(raised):
        lease_ports(2)
    assert given == [port]
    given = offer([port], monkeypatch)
    with lease_ports(1) as again:
        assert again.ports == (port,)
        assert given == []
    assert given == [port]


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
from distbench.launch import ports
import portpicker
ports.LOOPBACK = sys.argv[2]
# Everybody is offered the same few ports in the same order.
offers = iter(json.loads(sys.argv[1]) * 50)
portpicker.pick_unused_port = lambda: next(offers)
lease = ports.lease_ports(4)
print(json.dumps(lease.ports), flush=True)
sys.stdin.read()
"""


def test_leases_of_other_processes_never_collide_and_end_with_them() -> None:
    with lease_ports(8) as offers:
        command = [sys.executable, "-c", _LEASER, json.dumps(offers.ports), OWN]
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
