"""Of what the user's code raises it is told whose failure it is, and where."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.eager import core
from tensorflow.python.framework import ops

from distbench.worker.process.failures import blame_subject, classify_failure

pytestmark = pytest.mark.cluster
_GROUP: Any = getattr(builtins, "ExceptionGroup", None)
from_311 = pytest.mark.skipif(_GROUP is None, reason="Python 3.10 has no groups")


def classify(run: Callable[[], object]) -> Mapping[str, Any]:
    try:
        with blame_subject("before_step"):
            run()
    except Exception as error:  # noqa: BLE001 - a SubjectError
        return classify_failure(error)
    raise AssertionError("it raised nothing")


def lose_a_peer() -> None:
    """TensorFlow raises it, in a frame of its own."""
    status = core._NotOkStatusException("a peer is gone", 14, {})
    ops.raise_from_not_ok_status(status, None)


def tell_of_a_lost_peer() -> None:
    try:
        lose_a_peer()
    except tf.errors.UnavailableError as error:
        raise tf.errors.UnavailableError(None, None, "lost") from error


def lose_a_store() -> None:
    raise tf.errors.UnavailableError(None, None, "the store is down")


def use_up(_: object) -> Any:
    raise MemoryError


def use_up_in_a_graph() -> None:
    tf.function(lambda x: tf.numpy_function(use_up, [x], x.dtype))(tf.ones(3))


def ask_for_too_much() -> None:
    tf.ones([1 << 23, 1 << 10, 1 << 8])


@pytest.mark.parametrize(
    ("run", "kind"),
    [
        (lose_a_peer, "peer"),
        (tell_of_a_lost_peer, "peer"),
        (lose_a_store, "subject"),
        (lambda: use_up(0), "bench"),
        (use_up_in_a_graph, "bench"),
        (ask_for_too_much, "subject"),
    ],
)
def test_a_failure_is_laid_to_whom_it_is_of(
    run: Callable[[], object], kind: str
) -> None:
    told = classify(run)
    assert told["kind"] == kind, told
    assert ("ulimit -v" in told["message"]) == (kind == "bench")


async def fetch() -> None:
    raise ConnectionError("feature store is down")


async def gather() -> None:
    async with asyncio.TaskGroup() as group:  # type: ignore[attr-defined]  # from 3.11
        group.create_task(fetch())


@from_311
def test_a_group_is_told_with_what_it_holds_and_the_line_of_that() -> None:
    told = classify(lambda: asyncio.run(gather()))
    assert (told["kind"], told["exception"]) == ("subject", "ExceptionGroup")
    assert told["message"].endswith(": ConnectionError: feature store is down")
    assert told["frame"].endswith('raise ConnectionError("feature store is down")')
    assert "in gather" in told["traceback"]
    assert "in fetch" in told["traceback"]


@from_311
def test_a_group_of_what_nobody_raised_is_told_by_its_own_line() -> None:
    def run() -> None:
        inner = _GROUP("inner", [TypeError("a"), KeyError("b")])
        raise _GROUP("outer", [inner, ValueError()])

    told = classify(run)
    assert told["message"] == (
        "outer (2 sub-exceptions): TypeError: a; KeyError: 'b'; ValueError"
    )
    assert told["frame"].endswith('raise _GROUP("outer", [inner, ValueError()])')


@from_311
@pytest.mark.parametrize(
    ("run", "kind"), [(lose_a_peer, "peer"), (lambda: use_up(0), "bench")]
)
def test_a_group_is_laid_to_whom_its_first_one_is_of(
    run: Callable[[], object], kind: str
) -> None:
    def gather_one() -> None:
        try:
            run()
        except Exception as error:  # noqa: BLE001 - whatever it is
            raise _GROUP("outer", [_GROUP("inner", [error])]) from None

    assert classify(gather_one)["kind"] == kind
