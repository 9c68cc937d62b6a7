"""Whether XLA compiles ops that nobody marked, and who had it do so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distbench.spelling import spell_given

XLA_FLAGS = "TF_XLA_FLAGS"
"""The variable that says which ops XLA compiles, whatever a program says of it."""
_OFF = ("0", "-1")
_ON_CPUS = ("--tf_xla_cpu_global_jit", "--tf_xla_cpu_global_jit=true")
_ONE_GPU = "single-gpu("


def compiles_ops(flags: str, device: str) -> bool:
    """Whether flags of TensorFlow have XLA compile what it finds on such devices.

    Args:
        flags: The value of `TF_XLA_FLAGS`; the last of those for the same thing counts.
        device: `cpu` or `gpu`.
    """
    level, is_on_cpus = "0", False
    for word in flags.split():
        name, _, value = word.partition("=")
        if name == "--tf_xla_auto_jit":
            level = value
        elif name == "--tf_xla_cpu_global_jit":
            is_on_cpus = word in _ON_CPUS
    if device == "cpu":
        return is_on_cpus and level not in _OFF and not level.startswith(_ONE_GPU)
    return level not in _OFF


def find_jit(asked: bool | None, flags: str, device: str) -> bool | None:
    """Whether XLA compiles a scenario's steps, as it is asked or as the flags say."""
    if asked is None and compiles_ops(flags, device):
        return True
    return asked


def tell_compiled(jit: bool | None, device: str, environment: Mapping[str, Any]) -> str:
    """Who has XLA compile the ops of a run, in words; empty where nobody does.

    Args:
        jit: Whether the scenario says so.
        device: `cpu` or `gpu`.
        environment: What its tasks say of theirs.
    """
    if not jit:
        return ""
    flags = environment.get("variables", {}).get(XLA_FLAGS, "")
    is_set = compiles_ops(flags, device)
    on, off = (f"'{spell_given('jit', value)}'" for value in (True, False))
    who = f"{XLA_FLAGS} ({flags})" if is_set else on
    return f"{who} has XLA compile ops, which may be why; {off} leaves it out."
