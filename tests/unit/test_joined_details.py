"""What a finding says of several variables."""

from __future__ import annotations

from distbench.diagnose.causes.details import join_details


def test_what_happened_to_all_is_said_once() -> None:
    assert join_details([("it is lost", "a"), ("it is lost", "b")]) == "it is lost"


def test_a_line_is_quoted_once() -> None:
    place = "it goes astray at /my dir/loop.py:7, `g = f(x) if y else 0`: replicas have"
    words = join_details(
        [(f"{place} 1", "a"), (f"{place} 2", "b"), (f"{place} 1", "c")]
    )
    assert words == (
        f"of 'a' (and 1 more) {place} 1; "
        "of 'b' it goes astray at /my dir/loop.py:7: replicas have 2"
    )


def test_other_lines_are_quoted_too() -> None:
    told = [(f"it is wrong at loop.py:{n}, `x = {n}`", f"v{n}") for n in range(4)]
    words = join_details(told)
    assert words.count("`") == 6
    assert words.endswith("; and 1 more")
