"""Finding codes: what each one means, what causes it, how to confirm and fix it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from distbench.codes import (
    inputs,
    loss,
    numerics,
    reduction,
    replicas,
    running,
    servers,
    slots,
    sparse,
    update,
)
from distbench.codes.code import Code
from distbench.errors import make_unknown_name_error

__all__ = ["CODES", "FAMILIES", "Code", "find_code"]

FAMILIES: Mapping[str, tuple[Code, ...]] = MappingProxyType(
    {
        "loss": loss.CODES,
        "reduction": reduction.CODES,
        "sparse": sparse.CODES,
        "slots": slots.CODES,
        "update": update.CODES,
        "replicas": replicas.CODES,
        "servers": servers.CODES,
        "inputs": inputs.CODES,
        "numerics": numerics.CODES,
        "running": running.CODES,
    }
)
"""All codes by the family of their causes."""

CODES: Mapping[str, Code] = MappingProxyType(
    {code.name: code for family in FAMILIES.values() for code in family}
)
"""All codes by name."""


def find_code(name: str) -> Code:
    """Look a code up.

    Raises:
        BadInputError: There is no such code; the message gives the nearest one.
    """
    if name not in CODES:
        raise make_unknown_name_error("Finding code", name, CODES, section="codes")
    return CODES[name]
