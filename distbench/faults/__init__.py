"""Seeded faults: small realistic mistakes that the bench has to find and to name.

A fault is a class with a decorator, in the file of its family; nothing else lists it.
"""

from __future__ import annotations

import importlib
import pkgutil

from distbench.faults.fault import REGISTERED as _REGISTERED
from distbench.faults.fault import Fault as Fault

for _module in sorted(found.name for found in pkgutil.iter_modules(__path__)):
    importlib.import_module(f"{__name__}.{_module}")

FAULTS: tuple[Fault, ...] = tuple(_REGISTERED)
"""All faults, by file and in the order of definition."""
