"""How messages speak of the kinds of clusters."""

from __future__ import annotations

from collections.abc import Callable

from distbench.cluster.kind import ClusterKind
from distbench.cluster.kinds import KINDS


def list_forms() -> tuple[str, ...]:
    """How specs are written, those of one kind after those of another."""
    return tuple(form for kind in KINDS.values() for form in kind.forms)


def write_grammar() -> str:
    """Every form that a spec may have."""
    forms = " | ".join(list_forms())
    return f"{forms}, each with @cpu or @gpu behind it if wanted; a number may be 'all'"


def spell_kinds(are_meant: Callable[[ClusterKind], bool]) -> str:
    """The usual form of each kind of which something is true: `mwms:W or ps:W+P`."""
    *first, end = (kind.forms[0] for kind in KINDS.values() if are_meant(kind))
    return " or ".join([*([", ".join(first)] if first else []), end])
