"""Faults that are drawn at random: `fault_17` and, without the mistake, `clean_17`.

The expected diagnosis of each is what its mathematics says. None is registered among
the faults that users made.
"""

from __future__ import annotations

import re
from typing import Any

from distbench.faults.generated import (
    before_sum as before_sum,
)
from distbench.faults.generated import (
    in_loss as in_loss,
)
from distbench.faults.generated import (
    in_rows as in_rows,
)
from distbench.faults.generated import (
    in_slots as in_slots,
)
from distbench.faults.generated import (
    in_sum as in_sum,
)
from distbench.faults.generated import (
    in_update as in_update,
)
from distbench.faults.generated.generate import Generated as Generated
from distbench.faults.generated.generate import generate as generate

_NAME = re.compile(r"(fault|clean)_(\d+)")


def __getattr__(name: str) -> Any:
    """`fault_17` and `clean_17`: the train programs of seed 17."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    made = generate(int(found[2]))
    return made.make_faulty() if found[1] == "fault" else made.make_clean()
