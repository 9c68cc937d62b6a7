"""TensorFlow as a name that costs nothing until it is used.

The catalogues of faults and unusual programs are listed by the bench's own process,
which never imports TensorFlow; their code runs in tasks, which have it.
"""

from __future__ import annotations

import importlib
from typing import Any


class LazyModule:
    """A module that is imported when its first attribute is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)

    def __reduce__(self) -> tuple[Any, ...]:
        # What pickle makes without a name would ask itself for one without end.
        return LazyModule, (self._name,)


tf: Any = LazyModule("tensorflow")
keras: Any = LazyModule("tf_keras")
keras2: Any = LazyModule("tf_keras.optimizers")
keras3_base: Any = LazyModule("keras")
keras3: Any = LazyModule("keras.optimizers")
v1: Any = LazyModule("tensorflow.compat.v1.train")
legacy: Any = LazyModule("tf_keras.optimizers.legacy")
schedules: Any = LazyModule("tf_keras.optimizers.schedules")
