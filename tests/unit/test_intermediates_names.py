"""Gradients that a step takes go by the path of their variable."""

from __future__ import annotations

import pytest

from distbench.trace.intermediates import name_given, rename_given

PATHS = {"net/w": "w", "given|1|v": "u"}


@pytest.mark.parametrize(
    ("name", "renamed"),
    [
        (name_given(1, "net/w"), name_given(1, "w")),
        (name_given(0, "v"), name_given(0, "v")),
        (name_given(12, "given|1|v"), name_given(12, "u")),
        ("0|file.py:3|Mul|1:0", "0|file.py:3|Mul|1:0"),
        ("step|net/w|Mul|1:0", "step|net/w|Mul|1:0"),
        ("net/w", "net/w"),
        ("", ""),
    ],
)
def test_a_gradient_is_renamed_with_its_variable(name, renamed):
    assert rename_given(name, PATHS) == renamed
