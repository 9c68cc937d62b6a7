"""What gives a train program its data."""

from __future__ import annotations

import pytest

from distbench.worker.subjects.data_methods import list_data_methods


class _Both:
    def data(self, step: int) -> int:
        return step

    def dataset_fn(self, context: object) -> object:
        return context


class _NoData(_Both):
    data = None  # type: ignore[assignment]  # as `__hash__ = None` says it


class _Nothing(_NoData):
    dataset_fn = None  # type: ignore[assignment]
    dataset = "a word"


@pytest.mark.parametrize(
    ("program", "feeds"),
    [
        (_Both(), ("data", "dataset_fn")),
        (_Both, ("data", "dataset_fn")),
        (_NoData(), ("dataset_fn",)),
        (_Nothing(), ()),
    ],
)
def test_the_first_that_can_be_called_feeds_a_program(
    program: object, feeds: tuple[str, ...]
) -> None:
    assert list_data_methods(program) == feeds
