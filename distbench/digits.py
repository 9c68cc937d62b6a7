"""UCI's handwritten digits, as scikit-learn packages them."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from distbench.errors import BadInputError


@functools.cache
def load_digits() -> npt.NDArray[Any]:
    """The images and what they show: uint8 [1797, 65].

    A row has 64 grey levels, from 0 to 16, and the digit. Reads the file that
    scikit-learn packages (E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten
    Digits", UCI Machine Learning Repository, 1998; see
    `sklearn.datasets.load_digits`) without importing scikit-learn, which would take
    a second in each task of each cluster.

    Raises:
        BadInputError: scikit-learn is not installed.
    """
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise BadInputError(
            "Workload 'mlp' takes its data from scikit-learn, which is not installed. "
            "Run `pip install distbench[scenarios]`, or choose another workload."
        )
    path = Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"
    digits = np.loadtxt(path, delimiter=",").astype(np.uint8)
    digits.flags.writeable = False  # all who ask get the same
    return digits


def draw_digits(seed: int, first: int, count: int) -> npt.NDArray[Any]:
    """Some of them, in an order that a seed decides and that goes round and round.

    Args:
        seed: Of the order.
        first: Place in that order of the first one.
        count: How many.

    Returns:
        uint8 [count, 65], as in `load_digits`.
    """
    digits = load_digits()
    order = np.random.default_rng((seed, 0)).permutation(len(digits))
    return digits[np.take(order, np.arange(first, first + count), mode="wrap")]
