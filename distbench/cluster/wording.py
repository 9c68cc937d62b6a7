"""How messages speak of the kinds of clusters."""

from __future__ import annotations

from collections.abc import Callable

from distbench.cluster.kind import ClusterKind
from distbench.cluster.kinds import KINDS


def write_grammar() -> str:
    """Every form that a spec may have."""
    forms = " | ".join(form for kind in KINDS.values() for form in kind.forms)
    return f"{forms}, each with @cpu or @gpu behind it if wanted; a number may be 'all'"


def spell_kinds(
    are_meant: Callable[[ClusterKind], bool],
    *,
    last: Callable[[ClusterKind], bool] = lambda _: False,
) -> str:
    """The usual form of each kind of which something is true: `mwms:W or ps:W+P`.

    Args:
        are_meant: Says whether a kind is one of them.
        last: Says whether it comes after those of which this is not true.
    """
    meant = sorted(filter(are_meant, KINDS.values()), key=last)
    *first, end = (kind.forms[0] for kind in meant)
    return " or ".join([*([", ".join(first)] if first else []), end])
