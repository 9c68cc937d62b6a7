"""The stock optimizer that tells whose fault a finding is."""

from __future__ import annotations

from pathlib import Path

from distbench.target import target_to_json, write_pickled_target
from distbench.worker.families import name_control
from distbench.worker.families.controls import make_plain_descent
from distbench.worker.stepping.session import Session


def write_control(
    session: Session, folder: Path, *, keeps_descent: bool = False
) -> str:
    """Have the stock optimizer of the first optimizer's family ready as a subject.

    In the place of an update by hand it is plain descent, which has no state either.
    """
    optimizers = session.optimizers or [make_plain_descent()]
    keeps_descent = keeps_descent or not session.optimizers
    control = session.program.make_control(optimizers, keeps_descent=keeps_descent)
    label = f"distbench.worker.families.controls:{name_control(optimizers[0])}"
    return target_to_json(write_pickled_target(control, folder, label))
