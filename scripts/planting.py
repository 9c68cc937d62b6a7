"""Plants an error into recorded values and lets it run through the rest of its step.

Pure NumPy: what a cluster with that error would have recorded, computed from what one
without it did record. That is only as good as the arithmetic, so `Propagation.proves`
first shows that it gives back the bits of the clean run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from distbench.evidence import Evidence
from distbench.trace import COMPUTED, UPDATED, WHOLE, Phase, Trace, TraceKey, Value

Array = npt.NDArray[Any]
Tensors = dict[str, Array]
"""Arrays of one replica and phase, by the path of the variable."""

GRADIENTS: tuple[Phase, ...] = (
    "local_gradient",
    "reduced_gradient",
    "applied_gradient",
)
_ALIGNED_BYTES = 64
"""TensorFlow's chunks of a ring start at multiples of this (`EIGEN_MAX_ALIGN_BYTES` in
tensorflow/core/common_runtime/collective_util.cc)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """An error in one value of one step.

    Attributes:
        step: The step.
        phase: Where it is planted.
        variable: Path of the variable, `""` for the loss.
        replicas: Who shows it.
        factor: What the whole value is multiplied by.
        element: The flat index of the element that `error` is added to.
        error: What is added to it.
    """

    step: int
    phase: Phase
    variable: str
    replicas: tuple[int, ...]
    factor: float = 1.0
    element: int | None = None
    error: float = 0.0

    def change(self, value: Array) -> Array:
        """The value with the error, rounded once."""
        wide = np.array(value, np.float64)
        wide *= self.factor
        if self.element is not None:
            wide.reshape(-1)[self.element] += self.error
        return np.asarray(wide.astype(value.dtype))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Gradient descent, with momentum where it is not 0, rounded as Keras' kernels do.

    m <- momentum m - rate g, var <- var + m; without: var <- var - rate g.
    """

    rate: float
    momentum: float = 0.0

    def move_slot(self, slot: Array, gradient: Array) -> Array:
        """The slot after the step."""
        t = slot.dtype.type
        return np.asarray(t(self.momentum) * slot - t(self.rate) * gradient)

    def move(self, variable: Array, slot: Array | None, gradient: Array) -> Array:
        """The variable after the step, given its slot after it."""
        if slot is not None:
            return np.asarray(variable + slot)
        return np.asarray(variable - variable.dtype.type(self.rate) * gradient)


def add_in_ring(parts: Sequence[Array]) -> Array:
    """Sum of flat arrays as the ring all-reduce of N tasks rounds it.

    The array is cut in N chunks. Chunk c starts in the task of rank c and takes up one
    addend after another on its way round (tensorflow/core/common_runtime/
    ring_reducer.cc).
    """
    size, count = len(parts[0]), len(parts)
    aligned = _ALIGNED_BYTES // parts[0].itemsize
    chunk = math.ceil(math.ceil(size / count) / aligned) * aligned
    total = np.empty_like(parts[0])
    for number in range(count):
        here = slice(number * chunk, (number + 1) * chunk)
        addends = [parts[(number + k) % count][here] for k in range(count)]
        done = addends[0].copy()
        for addend in addends[1:]:
            done = done + addend
        total[here] = done
    return total


def reduce_gradients(gradients: Sequence[Tensors]) -> Tensors:
    """The sum over tasks as `MultiWorkerMirroredStrategy` computes it.

    The gradients are joined to one array, the last variable first, and the ranks of the
    tasks are those of their names: task 10 comes before task 2.
    """
    ranks = sorted(range(len(gradients)), key=str)
    paths = list(reversed(gradients[0]))
    total = add_in_ring(
        [np.concatenate([gradients[r][p].ravel() for p in paths]) for r in ranks]
    )
    ends = np.cumsum([gradients[0][p].size for p in paths])[:-1]
    pieces = dict(zip(paths, np.split(total, ends), strict=True))
    return {p: pieces[p].reshape(array.shape) for p, array in gradients[0].items()}


class Propagation:
    """Computes a step anew from the phase at which an error is planted.

    Args:
        evidence: Of a clean `mwms` run whose optimizer follows the rule.
        rule: The rule.
    """

    def __init__(self, evidence: Evidence, rule: Rule) -> None:
        self.evidence = evidence
        self.rule = rule
        infos = evidence.observed.variables
        # In the order in which the optimizer is given them.
        self.paths = [v.path for v in infos if v.role == "variable"]
        self.slots = {
            v.of: v.path for v in infos if v.role == "slot" and v.of in self.paths
        }
        self._replicas = range(evidence.observed.replicas)

    def proves(self, step: int) -> dict[str, bool]:
        """Whether the clean step comes out bit for bit: the sum, and the update."""
        observed = self.evidence.observed
        sums = reduce_gradients(
            [self._read(step, GRADIENTS[0], r) for r in self._replicas]
        )
        is_sum, is_update = True, True
        for replica in self._replicas:
            reduced = self._read(step, "reduced_gradient", replica)
            is_sum &= _are_same(reduced, sums)
            clean = self._apply(step, replica, reduced, None)
            replay = self.evidence.fed.replays["reduced_gradient"]
            for (phase, path), array in clean.items():
                key = TraceKey(step=step, phase=phase, variable=path, replica=replica)
                for trace in (observed, replay):
                    is_update &= _are_same({"": array}, {"": _get(trace, key)})
        return {"sum": is_sum, "update": is_update}

    def plant(self, plant: Plant) -> Evidence:
        """What would have been recorded at that step; other steps are left out."""
        step = plant.step
        seen = _select(self.evidence.observed, step)
        replays: dict[Phase, dict[TraceKey, Value]] = {p: {} for p in GRADIENTS}
        for replica, reduced in enumerate(self._plant_gradients(plant, seen)):
            flow = self._apply(step, replica, reduced, plant)
            _write(seen, step, replica, flow)
            fed: dict[Phase, Tensors] = {
                "local_gradient": self._read(step, "local_gradient", replica),
                "reduced_gradient": reduced,
                "applied_gradient": {
                    path: flow["applied_gradient", path] for path in self.paths
                },
            }
            for phase, gradients in fed.items():
                follows = self._apply(step, replica, gradients, None)
                _write(replays[phase], step, replica, follows)
        # The bench replays from further points only where it has something to explain.
        if not _differ(seen, replays["reduced_gradient"], ("applied_gradient",)):
            del replays["applied_gradient"]
        if not _differ(seen, replays["reduced_gradient"], UPDATED):
            del replays["local_gradient"]
        replay = self.evidence.fed.replays["reduced_gradient"]
        return replace(
            self.evidence,
            observed=replace(self.evidence.observed, values=seen),
            fed=replace(
                self.evidence.fed,
                replays={
                    phase: replace(replay, values=values)
                    for phase, values in replays.items()
                },
            ),
        )

    def _plant_gradients(
        self, plant: Plant, seen: dict[TraceKey, Value]
    ) -> list[Tensors]:
        """Every replica's reduced gradients; puts what comes before into `seen`."""
        step = plant.step
        for replica in plant.replicas:
            key = TraceKey(
                step=step, phase=plant.phase, variable=plant.variable, replica=replica
            )
            if plant.phase in COMPUTED:
                seen[key] = plant.change(_to_array(seen[key]))
        if plant.phase != "local_gradient":
            reduced = [self._read(step, "reduced_gradient", r) for r in self._replicas]
            return [
                self._change(plant, "reduced_gradient", replica, tensors)
                for replica, tensors in enumerate(reduced)
            ]
        local = [
            self._change(
                plant, "local_gradient", r, self._read(step, "local_gradient", r)
            )
            for r in self._replicas
        ]
        return [reduce_gradients(local)] * len(local)

    def _apply(
        self, step: int, replica: int, reduced: Tensors, plant: Plant | None
    ) -> dict[tuple[Phase, str], Array]:
        """What follows from a reduced gradient, with what is planted after it."""
        applied = self._change(plant, "applied_gradient", replica, reduced)
        slots = {
            path: self.rule.move_slot(self._before(step, "slot", slot), applied[path])
            for path, slot in self.slots.items()
        }
        slots = {
            path: self._change(plant, "slot", replica, {self.slots[path]: array})[
                self.slots[path]
            ]
            for path, array in slots.items()
        }
        moved = {
            path: self.rule.move(
                self._before(step, "variable", path), slots.get(path), applied[path]
            )
            for path in self.paths
        }
        moved = self._change(plant, "variable", replica, moved)
        flow: dict[tuple[Phase, str], Array] = {}
        for path in self.paths:
            flow["reduced_gradient", path] = reduced[path]
            flow["applied_gradient", path] = applied[path]
            flow["variable", path] = moved[path]
        for path, array in slots.items():
            flow["slot", self.slots[path]] = array
        return flow

    def _change(
        self, plant: Plant | None, phase: Phase, replica: int, values: Tensors
    ) -> Tensors:
        if plant is None or plant.phase != phase or replica not in plant.replicas:
            return values
        return {
            path: plant.change(array) if path == plant.variable else array
            for path, array in values.items()
        }

    def _read(self, step: int, phase: Phase, replica: int) -> Tensors:
        return {
            path: _get(
                self.evidence.observed,
                TraceKey(step=step, phase=phase, variable=path, replica=replica),
            )
            for path in self.paths
        }

    def _before(self, step: int, phase: Phase, path: str) -> Array:
        value = self.evidence.get_before(step, phase, path)
        if value is None:
            raise KeyError(f"{phase} of {path} before step {step}")
        return _to_array(value)


def pick_middle(value: Array) -> int:
    """The flat index of the element whose absolute value is the median."""
    order = np.argsort(np.abs(value.ravel()), kind="stable")
    return int(order[len(order) // 2])


def _select(trace: Trace, step: int) -> dict[TraceKey, Value]:
    return {key: value for key, value in trace.values.items() if key.step == step}


def _write(
    values: dict[TraceKey, Value],
    step: int,
    replica: int,
    flow: dict[tuple[Phase, str], Array],
) -> None:
    for (phase, path), array in flow.items():
        key = TraceKey(step=step, phase=phase, variable=path, replica=replica)
        values[key] = array


def _get(trace: Trace, key: TraceKey) -> Array:
    return _to_array(trace.values[key])


def _to_array(value: Value) -> Array:
    if not isinstance(value, np.ndarray):
        raise TypeError("sparse gradients are not planted")
    return value


def _are_same(left: Tensors, right: Tensors) -> bool:
    return all(left[path].tobytes() == right[path].tobytes() for path in left)


def _differ(
    seen: dict[TraceKey, Value],
    expected: dict[TraceKey, Value],
    phases: tuple[str, ...],
) -> bool:
    return any(
        _to_array(seen[key]).tobytes() != _to_array(value).tobytes()
        for key, value in expected.items()
        if key.phase in phases and key.replica != WHOLE
    )
