"""What all groups of tests share."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from pathlib import Path

import pytest

# Images for builds often turn this off. Here every worker imports the same modules in
# each run, and so do the processes that tests start.
sys.dont_write_bytecode = False

# Where a helper asserts, a failure shows what was compared, as a test's own does.
_HELPERS = {path.stem for path in Path(__file__).parent.glob("*/*.py")} - {"conftest"}
pytest.register_assert_rewrite(*_HELPERS)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave all cases of a test but the first ones for later: `first(count)`.

    Of those that start clusters to the night, and there it is the first one if nothing
    is said; of all others to the sweeps.
    """
    seen: Counter[tuple[object, str]] = Counter()
    for item in items:
        starts_clusters = item.get_closest_marker("cluster") is not None
        later = "nightly" if starts_clusters else "sweep"
        first = item.get_closest_marker("first")
        count = first.args[0] if first else 1 if starts_clusters else None
        if count is None or item.get_closest_marker(later) is not None:
            continue
        test = (item.parent, getattr(item, "originalname", item.name))
        seen[test] += 1
        if seen[test] > count:
            item.add_marker(later)


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Have one worker run all tests that share what is made once for their module.

    With `--dist loadgroup`; else each worker makes it again, from clusters of its own.
    """
    if not isinstance(item, pytest.Function):
        return
    fixtures = item._fixtureinfo.name2fixturedefs.values()
    if any(f.scope == "module" for found in fixtures for f in found):
        item.add_marker(pytest.mark.xdist_group(item.path.stem))


# Collecting makes what stays until the end: modules, items, fixtures. The collector of
# garbage would look through all of that again and again, then and while tests run.
gc.disable()


def pytest_collection_finish() -> None:
    """Look for garbage from here on, but not in what has been made so far."""
    gc.collect()
    gc.freeze()
    gc.enable()
