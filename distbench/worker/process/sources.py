"""Whose a file of code is: a framework's, that of an installed package, or the user's.

What is installed is known by its folder alone: the user's own may have the same name.
"""

from __future__ import annotations

import importlib.util
import os
import sysconfig

from distbench.pickling import PACKAGES, is_cell, is_installed

_LIBRARY = os.path.join(sysconfig.get_path("stdlib"), "")  # noqa: PTH118  # likewise
_FRAMEWORKS = {
    name: tuple(
        os.path.join(folder, "")  # noqa: PTH118  # a Path has no separator at its end
        for folder in spec.submodule_search_locations or ()
    )
    for name in ("tensorflow", "tf_keras", "keras", "distbench")
    if (spec := importlib.util.find_spec(name)) is not None
}
_KERAS = "backend/tensorflow/"
_OPS = (
    *_FRAMEWORKS.get("tensorflow", ()),
    *(
        f"{folder}src/{part}".replace("/", os.sep)
        for name, parts in {
            "keras": (
                *("ops/", "random/", "backend/common/"),
                *(f"{_KERAS}{one}.py" for one in ("core", "image", "linalg", "math")),
                *(f"{_KERAS}{one}.py" for one in ("nn", "numpy", "random", "sparse")),
            ),
            "tf_keras": ("backend.py",),
        }.items()
        for folder in _FRAMEWORKS.get(name, ())
        for part in parts
    ),
)
"""What makes ops for whoever asks for them, and decides nothing itself."""
_RUNNING = tuple(
    os.path.join(folder, part, "")  # noqa: PTH118  # likewise
    for folder in _FRAMEWORKS.get("distbench", ())
    for part in ("launch", "worker", "agent")
)
_GENERATED = "__autograph_generated_file"


def is_of(file: str, *names: str) -> bool:
    """Whether a file belongs to one of these frameworks."""
    return any(file.startswith(_FRAMEWORKS.get(name, ())) for name in names)


def is_of_ops(file: str) -> bool:
    """Whether a file makes ops in the name of its caller, as `keras.ops` does."""
    return file.startswith(_OPS)


def is_of_caller(file: str) -> bool:
    """Whether a file belongs to who runs a subject's step: the bench, or Python itself.

    The bench's own samples and faults are subjects.
    """
    is_python = file.startswith(_LIBRARY) and not file.startswith(PACKAGES)
    return is_python or file.startswith(("<frozen ", *_RUNNING))


def is_foreign(file: str) -> bool:
    """Whether a file belongs to a framework, the bench among them, or is generated."""
    return is_of(file, *_FRAMEWORKS) or _GENERATED in file


def is_own_file(file: str) -> bool:
    """Whether code of a file is the user's own: no framework, and nothing installed."""
    if is_cell(file):
        return True
    is_known = file.startswith("<") or is_installed(file)
    return not is_known and not is_foreign(file)
