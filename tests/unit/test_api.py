"""The Python interface, up to where a check begins."""

from __future__ import annotations

from typing import Any

import pytest

import distbench
from distbench import api


class BegunError(Exception):
    """A check would begin."""


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("scale-error", ("scale-error",)),
        (["scale-error", "raises"], ("scale-error", "raises")),
        ((), ()),
    ],
    ids=["one", "several", "none"],
)
def test_one_code_is_expected_as_several_are(
    monkeypatch: pytest.MonkeyPatch, given: Any, expected: tuple[str, ...]
) -> None:
    def begin(target: object, options: Any, progress: object) -> None:
        assert options.expect == expected
        raise BegunError

    monkeypatch.setattr(api, "check_target", begin)
    with pytest.raises(BegunError):
        distbench.check("a.b:c", expect=given)
