"""Messages call an option what it is called where it was given."""

from __future__ import annotations

from dataclasses import fields

import pytest

from distbench.cli import make_command
from distbench.cli.outcome import run_command
from distbench.errors import BadInputError
from distbench.options import CheckOptions
from distbench.spelling import spell, spell_given

INTERNAL = {"details", "start"}
"""What no option of the command line sets."""


def test_the_command_line_calls_every_option_what_its_help_does() -> None:
    command = make_command().commands["check"]  # type: ignore[attr-defined]
    known = {option for parameter in command.params for option in parameter.opts}
    told: set[str] = set()

    def tell() -> int:
        names = {field.name for field in fields(CheckOptions)} - INTERNAL
        told.update(map(spell, names))
        return 0

    assert run_command(tell) == 0
    assert told <= known
    assert spell("timeout_s") == "timeout_s"


@pytest.mark.parametrize(
    ("field", "value", "shell", "python"),
    [
        ("split", (4, 4), "--split 4,4", "split=(4, 4)"),
        ("jit", False, "--jit off", "jit=False"),
        ("jit", True, "--jit on", "jit=True"),
        ("faults", "drop:ps:0@1", "--fault drop:ps:0@1", "faults='drop:ps:0@1'"),
    ],
)
def test_an_option_is_told_as_it_is_given(
    field: str, value: object, shell: str, python: str
) -> None:
    told: list[str] = []

    def tell() -> int:
        told.append(spell_given(field, value))
        return 0

    assert run_command(tell) == 0
    assert told == [shell]
    assert spell_given(field, value) == python


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-c mwms:2 --in-flight 8", "Received: --in-flight 8."),
        ("-c mwms:2 --partitioner fixed:2", "Received: --partitioner fixed:2."),
        (
            "--restore-partitioner fixed:2",
            "--restore-partitioner fixed:2 alone",
        ),
        ("--restore-after 2", "Expected --restore-from, the cluster"),
        ("--require-gpus -1", "--require-gpus must not be negative"),
        ("--loss-weight 0", "--loss-weight must be a positive"),
        ("-j 0", "--jobs must be 1 or more"),
    ],
)
def test_a_shell_is_told_of_its_own_options(call, capsys, line, message) -> None:
    assert call("check", "a.b:c", *line.split()) == 2
    assert message in capsys.readouterr().err


def test_other_commands_name_theirs(call, capsys) -> None:
    for words, message in (
        (("debug", "a.b:c", "--step", "-1"), "--step must not be negative"),
        (("history", "--floor", "-1"), "--floor must be 0 or more"),
        (("history", "--last", "1"), "Received: --last 1."),
    ):
        assert call(*words) == 2
        assert message in capsys.readouterr().err


def test_who_makes_the_options_is_told_of_their_fields() -> None:
    assert spell_given("partitioner", "fixed:2") == "partitioner='fixed:2'"
    with pytest.raises(BadInputError, match="clusters must be a list"):
        CheckOptions(clusters=3)  # type: ignore[arg-type]
