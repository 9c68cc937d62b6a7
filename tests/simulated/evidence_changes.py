"""`dataclasses.replace` of an evidence, for the fields of its groups as well."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from distbench.evidence import Evidence

_GROUPS = ("fed", "measure", "subject")


def change_evidence(evidence: Evidence, **changes: Any) -> Evidence:
    """The same evidence with some fields changed, whichever group they are of."""
    groups = {}
    for name in _GROUPS:
        group = getattr(evidence, name)
        known = {field.name for field in fields(group)}
        own = {key: changes.pop(key) for key in known & changes.keys()}
        groups[name] = replace(group, **own)
    return replace(evidence, **groups, **changes)
