"""What is closed at the end of a `with`, however that is left."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import TypeVar

_Closing = TypeVar("_Closing", bound="Closing")


class Closing(ABC):
    """Closes itself behind a `with`."""

    @abstractmethod
    def close(self) -> None:
        """Give back what it has; a second call does nothing."""

    def __enter__(self: _Closing) -> _Closing:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
