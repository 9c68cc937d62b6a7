"""Who is let in by the bench, and what goes over the wire then."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from launch_support import TIMEOUT_S

from distbench.agent import wire
from distbench.agent.door import Door, Ticket


@pytest.fixture
def door() -> Iterator[Door]:
    door = Door("127.0.0.1")
    yield door
    door.close()


@contextlib.contextmanager
def knock(ticket: Ticket, key: str = "") -> Iterator[wire.Wire]:
    with socket.create_connection((ticket.host, ticket.port)) as sock:
        own = bytes.fromhex(key or ticket.key)
        with contextlib.closing(wire.greet_bench(sock, ticket.identity, own)) as ours:
            yield ours


def test_a_ticket_lets_in_once(door: Door) -> None:
    ticket = door.issue()
    # A stranger that says nothing holds nobody up.
    with socket.create_connection((ticket.host, ticket.port)), knock(ticket) as ours:
        ours.send({"tell": "hello"}, b"body")
        identity, arrived = door.arrived.get(timeout=TIMEOUT_S)
        with contextlib.closing(arrived):
            assert identity == ticket.identity
            assert arrived.receive() == ({"tell": "hello"}, b"body")
        with pytest.raises(ConnectionError), knock(ticket):
            pass


def wait_until_given_up(gone_s: int) -> None:
    """As long as it takes the kernel to give a peer up that reads nothing."""
    ours, theirs = make_connection()
    ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, gone_s * 1000)
    much = bytes(1 << 26)
    with ours, theirs, pytest.raises(TimeoutError):
        ours.sendall(much)  # more than there is room for


@pytest.mark.skipif(sys.platform != "linux", reason="needs TCP_USER_TIMEOUT")
def test_a_bench_that_reads_nothing_for_a_while_is_not_gone(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-Z stops it, and what nodes say fills all that the kernels keep of it."""
    monkeypatch.setattr(wire, "GONE_S", 1)
    monkeypatch.setattr(wire, "SEND_S", 20)
    ticket, large = door.issue(), bytes(1 << 26)
    with knock(ticket) as ours:
        sends = threading.Thread(target=ours.send, args=({"tell": "log"}, large))
        sends.start()
        _, arrived = door.arrived.get(timeout=TIMEOUT_S)
        with contextlib.closing(arrived):
            wait_until_given_up(2 * wire.GONE_S)
            assert arrived.receive() == ({"tell": "log"}, large)
        sends.join()


def test_a_fork_of_the_bench_leaves_the_door_open(door: Door) -> None:
    child = os.fork()
    if child == 0:
        try:
            door.close()
        finally:
            os._exit(0)
    assert os.waitpid(child, 0) == (child, 0)
    with knock(ticket := door.issue()):
        identity, arrived = door.arrived.get(timeout=TIMEOUT_S)
        arrived.close()
    assert identity == ticket.identity


def test_who_knocked_before_the_door_was_closed_is_not_let_in(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard, ticket = threading.Event(), door.issue()

    def greet(sock: socket.socket, take_key: Callable[[str], bytes | None]) -> Any:
        heard.set()
        return wire.greet_agent(sock, take_key)

    monkeypatch.setattr("distbench.agent.door.greet_agent", greet)
    with socket.create_connection((ticket.host, ticket.port)) as sock:
        assert heard.wait(TIMEOUT_S)
        door.close()
        with pytest.raises(ConnectionError):
            wire.greet_bench(sock, ticket.identity, bytes.fromhex(ticket.key))
    assert door.arrived.empty()


def test_a_wrong_key_lets_nobody_in(door: Door) -> None:
    ticket = door.issue()
    with pytest.raises(ConnectionError, match="greeting"), knock(ticket, "00" * 32):
        pass
    assert door.arrived.empty()


def test_an_agent_trusts_no_bench_without_the_key() -> None:
    ours, theirs = make_connection()
    impostor = threading.Thread(target=pretend_to_be_the_bench, args=(theirs,))
    impostor.start()
    with ours, pytest.raises(ConnectionError, match="greeting failed"):
        wire.greet_bench(ours, "agent", b"the key")
    impostor.join()


def make_connection() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        return ours, listener.accept()[0]


def pretend_to_be_the_bench(sock: socket.socket) -> None:
    with sock, contextlib.suppress(ConnectionError):
        wire.greet_agent(sock, lambda _: b"another key")
