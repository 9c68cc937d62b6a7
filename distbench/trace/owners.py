"""Where the path of a slot names the variable that it belongs to."""

from __future__ import annotations

import re


def rename_owner(path: str, old: str, new: str) -> str:
    """A path with another variable's in the place of the owner's, once.

    Whole parts of it, as in `momentum/dense/kernel`; or words of one part, as Keras 3
    makes `adam/dense_kernel_momentum`. A short path, as `m`, is a piece of other words
    too: a path that names its owner in no such way is left as it is.

    Args:
        path: Of the slot.
        old: Path of its variable.
        new: What to put there; for words with `_` in place of `/`.
    """
    whole, part = f"/{path}/", f"/{old}/"
    if part in whole:
        return whole.replace(part, f"/{new}/", 1)[1:-1]
    words = re.escape(old.replace("/", "_"))
    return re.sub(
        rf"(?<![^\W_]){words}(?![^\W_])", lambda _: new.replace("/", "_"), path, count=1
    )
