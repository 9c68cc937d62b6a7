"""How many examples each replica gets, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from distbench.scenario import Scenario
from distbench.split import shard_slices
from distbench.worker.stepping.program import Program

Shards = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The shards of a run.

    Attributes:
        first: Those of the first step, and of all that have no others.
        resized: Those of steps whose batch has another size.
    """

    first: Shards
    resized: Mapping[int, Shards]

    def cut(self, step: int, batch: Any) -> Iterator[Any]:
        """The shard of each replica."""
        for part in shard_slices(self.resized.get(step, self.first)):
            yield tf.nest.map_structure(lambda a, part=part: np.asarray(a)[part], batch)


def find_sizes(program: Program, scenario: Scenario, replicas: int) -> Sizes:
    """Ask a program for all batches of a scenario, and see how they are shared out."""
    found = {
        step: program.split(scenario, replicas, step)
        for step in range(scenario.batches)
    }
    return Sizes(
        first=found[0],
        resized={step: shards for step, shards in found.items() if shards != found[0]},
    )
