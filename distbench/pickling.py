"""Objects of the user's on their way to the tasks and back: pickled with their code."""

from __future__ import annotations

import io
import linecache
import os
import site
import sys
import sysconfig
from collections import ChainMap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, ClassVar

from distbench.errors import BadInputError
from distbench.locks import Locks

_LOCKS = Locks()
_CELLS: set[str] = set()
"""Names of files whose lines came with the functions that stand in them."""

PACKAGES = tuple(
    {
        *(sysconfig.get_path(kind) for kind in ("purelib", "platlib")),
        # Of the system too, where an environment sees it, and of 'pip install --user'.
        *site.getsitepackages(),
        *filter(None, [site.getusersitepackages()]),
    }
)
"""The folders of installed packages."""
_INSTALLED = tuple(
    os.path.join(folder, "")  # noqa: PTH118  # its end counts
    for folder in (
        *(sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib")),
        *PACKAGES,
    )
)


def pickle_by_value(value: object, name: str, *beside: object) -> bytes:
    """Pickle an object with the code of the module that it comes from.

    Modules of an installation travel by name, since every task has them.

    Args:
        value: What to pickle.
        name: What to call it in the message.
        beside: Further objects; then it is a tuple of all that is pickled. What they
            have of that module is the same there as what the first one has.

    Raises:
        BadInputError: The value holds something that cannot be pickled.
    """
    home = sys.modules.get(getattr(value, "__module__", None) or "")
    try:
        # One at a time: cloudpickle's list of modules is that of the process.
        with _LOCKS.of("cloudpickle"), _registered(home):
            return pickle_with_places((value, *beside) if beside else value)
    except Exception as error:  # noqa: BLE001  # any __reduce__ of the user's may raise
        raise BadInputError(
            f"'{name}' cannot be sent to the tasks ({type(error).__name__}: {error}). "
            "Make what it refers to picklable, or create it inside the function."
        ) from None


@contextmanager
def _registered(home: ModuleType | None) -> Iterator[None]:
    """Have what a module defines pickled with its code, if it is the user's own."""
    import cloudpickle

    listed = cloudpickle.list_registry_pickle_by_value()
    if home is None or home.__name__ in listed or not _is_users_own(home):
        yield
        return
    cloudpickle.register_pickle_by_value(home)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(home)


def pickle_with_places(value: object) -> bytes:
    """Pickle an object; functions that travel by value keep the file they stand in.

    cloudpickle leaves the file out since 3.1.3. AutoGraph then finds no source and runs
    a user's `if` and `for` as they are, and no traceback shows the user's line. Where
    there is no such file, as for the cells of a notebook, its lines travel too.
    """
    file = io.BytesIO()
    _make_pickler(file).dump(value)
    return file.getvalue()


def _make_pickler(file: io.BytesIO) -> Any:
    import cloudpickle

    reducers = cloudpickle.Pickler.dispatch_table
    # One object for each file, which a pickle holds once.
    lines: dict[str, tuple[str, ...]] = {}

    def reduce_code(code: CodeType) -> tuple[Callable[..., CodeType], tuple[Any, ...]]:
        make, arguments = reducers[CodeType](code)[:2]
        name = code.co_filename
        if name not in lines:
            lines[name] = () if Path(name).exists() else tuple(linecache.getlines(name))
        return _make_code, (name, lines[name], make, arguments)

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
        # Looked up once, as the pickler is made: an instance's own would come too late.
        dispatch_table: ClassVar[Any] = ChainMap({CodeType: reduce_code}, reducers)

    return Pickler(file)


def is_installed(file: str) -> bool:
    """Whether a file belongs to Python or to a package that is installed."""
    return file.startswith(_INSTALLED)


def is_cell(file: str) -> bool:
    """Whether a file is none, but the lines of a user's that came with a function."""
    return file in _CELLS


def _make_code(
    file: str,
    lines: tuple[str, ...],
    make: Callable[..., CodeType],
    arguments: tuple[Any, ...],
) -> CodeType:
    """Named in pickles: what one holds of a function's code."""
    if lines:
        # Without a time, which counts as that of a loader: it is never read anew.
        linecache.cache[file] = (sum(map(len, lines)), None, list(lines), file)
        _CELLS.add(file)
    return make(*arguments).replace(co_filename=file)


def _is_users_own(module: ModuleType) -> bool:
    """Whether a module may be unknown to the workers: not part of an installation."""
    if module.__name__.partition(".")[0] == __package__:
        return False
    file = getattr(module, "__file__", None)
    return bool(file) and not is_installed(str(file))
