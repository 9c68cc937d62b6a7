"""Cluster specs: which tasks a run consists of, and how many replicas they hold."""

from __future__ import annotations

from distbench.cluster.kind import ClusterKind
from distbench.cluster.kinds import KINDS
from distbench.cluster.numbers import ALL
from distbench.cluster.spec import ONE, ClusterSpec, Device, Role, Task
from distbench.cluster.wording import list_forms, spell_kinds, write_grammar

__all__ = [
    "ALL",
    "KINDS",
    "ONE",
    "ClusterKind",
    "ClusterSpec",
    "Device",
    "Role",
    "Task",
    "list_forms",
    "spell_kinds",
    "write_grammar",
]
