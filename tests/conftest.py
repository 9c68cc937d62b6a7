"""What the unit tests, the sweeps and the tests in a browser share."""

from __future__ import annotations

import gc

import pytest

# Helpers that assert; a failure shows what was compared, as a test's own does.
pytest.register_assert_rewrite(
    "drawn_checks",
    "input_checks",
    "judged_runs",
    "launch_support",
    "planted_case",
    "plugin_suites",
)


def pytest_collection_finish() -> None:
    """Spare the garbage collector what stays until the end: modules, items, fixtures.

    It would look through all of that again and again, for 8 % of the tests' time.
    """
    gc.collect()
    gc.freeze()
