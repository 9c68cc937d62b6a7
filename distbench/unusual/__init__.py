"""Correct but unusual programs: the bench must not cry wolf.

A program is a class with a decorator, in the file of its family; nothing else lists it.
"""

from __future__ import annotations

import importlib
import pkgutil

from distbench.unusual.program import REGISTERED as _REGISTERED
from distbench.unusual.program import Unusual as Unusual

for _module in sorted(found.name for found in pkgutil.iter_modules(__path__)):
    importlib.import_module(f"{__name__}.{_module}")

UNUSUAL: tuple[Unusual, ...] = tuple(_REGISTERED)
"""All of them, by file and in the order of definition."""
