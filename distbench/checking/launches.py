"""How the tasks of a check are started, as its options say."""

from __future__ import annotations

import os
from collections.abc import Callable

from distbench.errors import BadInputError
from distbench.launch.engine import Engine
from distbench.launch.local import LocalEngine
from distbench.launch.rundir import RunDirectory
from distbench.launch.spares import Spares
from distbench.observe import Launch
from distbench.observe.launching import OPEN_S
from distbench.options import CheckOptions
from distbench.spelling import spell_given

_COMPILES = "TF_FUNCTION_JIT_COMPILE_DEFAULT"


def make_launch(
    directory: RunDirectory,
    options: CheckOptions,
    engine: Engine | None = None,
    log: Callable[[str], None] = lambda _: None,
    spares: Spares | None = None,
) -> Launch:
    """Start tasks in a folder as the options of a check say.

    Args:
        directory: The folder.
        options: What is checked, and how.
        engine: Who finds places for tasks; None takes this machine.
        log: Told what the user should know.
        spares: Has tasks that were started before.

    Raises:
        BadInputError: The bench could see nothing of what its tasks compute.
    """
    if os.environ.get(_COMPILES, "").lower() in ("1", "true"):
        raise BadInputError(
            f"{_COMPILES} has XLA compile every function as a whole, and such a step "
            "keeps none of the values that the bench looks at. Unset it. Expected: "
            f"jit_compile=True where it is meant, or '{spell_given('jit', True)}'."
        )
    return Launch(
        engine=engine or LocalEngine(),
        log=log,
        directory=directory,
        keras=options.keras,
        jit=options.jit,
        sharers=options.jobs,
        patience=options.patience,
        open_s=max(OPEN_S, options.deadline_s),
        spares=spares,
        memory_gib=options.memory_gib,
        start=options.start,  # type: ignore[arg-type]  # validated by the options
    )
