"""What the unit tests and the sweeps share."""

from __future__ import annotations

import pytest

# Helpers that assert; a failure shows what was compared, as a test's own does.
pytest.register_assert_rewrite(
    "drawn_checks",
    "input_checks",
    "judged_runs",
    "launch_support",
    "planted_faults",
    "plugin_suites",
)
