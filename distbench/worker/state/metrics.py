"""Metrics of both Keras versions: which there are, and what they show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from distbench.worker.state.ancestry import list_ancestry
from distbench.worker.state.components import is_local

_BASES = ("tf_keras.src.metrics.base_metric.Metric", "keras.src.metrics.metric.Metric")


def is_metric(candidate: Any) -> bool:
    """Whether an object is a metric, of whichever Keras."""
    return not list_ancestry(candidate).keys().isdisjoint(_BASES)


def name_state(metrics: Sequence[Any], listed: Sequence[Any]) -> Mapping[int, str]:
    """What to call the state of metrics that the program does not list, by identity.

    Only what each replica has for itself: what is made outside of a strategy, and fed
    between two steps, is no part of them.
    """
    known = {id(variable) for variable in listed}
    return {
        id(variable): f"{metric.name}/{variable.name.split(':')[0]}"
        for metric in metrics
        for variable in metric.variables
        if id(variable) not in known and is_local(variable)
    }


def name_metrics(metrics: Sequence[Any]) -> Mapping[str, Any]:
    """Those that show something, by names that tell them apart.

    One that has no state but that of metrics which it holds, and which were found after
    it, shows what these do.
    """
    named: dict[str, Any] = {}
    for place, metric in enumerate(metrics):
        held = {id(v) for part in metrics[place + 1 :] for v in part.variables}
        if all(id(variable) in held for variable in metric.variables):
            continue
        name, number = metric.name, 1
        while name in named:
            number += 1
            name = f"{metric.name}#{number}"
        named[name] = metric
    return named


def read_result(metric: Any) -> npt.NDArray[np.generic] | None:
    """What a metric shows: a number, or all that it shows by name in one array.

    None where it shows something else, or cannot be asked: the user need not have done
    so at this point.
    """
    try:
        result = metric.result()
        shown = list(result.values()) if isinstance(result, Mapping) else [result]
        arrays = [np.array(tf.convert_to_tensor(value).numpy()) for value in shown]
    except Exception:  # noqa: BLE001  # a user's method may raise anything
        return None
    if not isinstance(result, Mapping):
        return arrays[0]
    return np.concatenate([np.ravel(array) for array in arrays]) if arrays else None
