"""What is told of a check's progress."""

from __future__ import annotations

from typing import Any

from distbench.checking.telling import Telling


class Listener:
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


def test_what_is_true_of_every_start_is_told_once() -> None:
    listener = Listener()
    telling = Telling(listener)
    for text in ("spawned", "spawned", "replaced", "spawned"):
        telling.note_once(text)
    for _ in range(2):
        telling.note("waiting for 1 of 2 agents")
    assert listener.notes == ["spawned", "replaced", *["waiting for 1 of 2 agents"] * 2]


def test_nobody_need_listen() -> None:
    Telling(None).note_once("spawned")
