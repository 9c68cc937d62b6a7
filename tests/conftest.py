"""What the unit tests and the sweeps share."""

from __future__ import annotations

import pytest

# Helpers that assert; a failure shows what was compared, as a test's own does.
pytest.register_assert_rewrite(
    "planted_faults", "judged_runs", "plugin_suites", "launch_support", "input_checks"
)
