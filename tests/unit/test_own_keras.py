"""A target that sets its Keras gets tasks that know of it."""

from __future__ import annotations

import pytest

from distbench.checking.own_keras import follow_target
from distbench.errors import BadInputError
from distbench.observe import OtherKerasError
from distbench.options import CheckOptions


def make_attempt(wanted: str, asked: list[str | None]):
    def attempt(options: CheckOptions) -> str:
        asked.append(options.keras)
        if (options.keras or "3") != wanted:
            raise OtherKerasError(wanted)
        return wanted

    return attempt


@pytest.mark.parametrize(
    ("wanted", "tried"), [("3", [None]), ("legacy", [None, "legacy"])]
)
def test_the_targets_keras_is_followed(wanted: str, tried: list[str | None]) -> None:
    asked: list[str | None] = []
    assert follow_target(CheckOptions(), make_attempt(wanted, asked)) == wanted
    assert asked == tried


def test_a_keras_that_was_asked_for_is_not_replaced() -> None:
    asked: list[str | None] = []
    with pytest.raises(BadInputError, match=r"to 1 .*'3'.*Leave one"):
        follow_target(CheckOptions(keras="3"), make_attempt("legacy", asked))
    assert asked == ["3"]
