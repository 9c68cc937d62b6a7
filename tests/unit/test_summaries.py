"""Which curves TensorBoard is given, and in which folders."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace

import pytest
from page_samples import ODD, make_checked_verdict, make_odd_verdict
from verdict_samples import make_run, make_verdict

from distbench.details import Details, Series
from distbench.summaries import list_scalars


def test_each_replica_has_its_losses_norms_and_errors():
    verdict = make_checked_verdict()
    run = verdict.runs[0]
    assert run.details is not None
    scalars = {(s.folder, s.tag): s for s in list_scalars(make_verdict(run))}
    place = "mlp-adam-mwms_2-x.bounded"
    assert {folder for folder, _ in scalars} == {
        f"{place}/{who}"
        for who in (
            "replica-0",
            "replica-1",
            "one-device",
            "one-device-shard-0",
            "one-device-shard-1",
        )
    }
    loss = next(s for s in run.details.series if (s.phase, s.replica) == ("loss", 1))
    assert scalars[f"{place}/replica-1", "loss"].values == loss.values
    norm = scalars[f"{place}/one-device", "norm/variable/dense/kernel"]
    assert norm.steps == (-1, 0, 1)
    finding = run.findings[0]
    errors = scalars[
        f"{place}/replica-0", f"error_over_bound/{finding.phase}/{finding.variable}"
    ]
    worst: dict[int, float] = defaultdict(float)
    for c in run.details.compared:
        if (c.phase, c.variable, c.replica) == (finding.phase, finding.variable, 0):
            worst[c.step] = max(worst[c.step], c.error_over_bound)
    assert dict(zip(errors.steps, errors.values, strict=True)) == worst
    assert errors.values[0] > 1


def test_runs_without_numbers_have_no_curves_and_names_never_meet():
    line = Series(
        phase="loss", variable="", replica=0, observed=True, steps=(0,), values=(1.0,)
    )
    run = make_run(details=Details(series=(line,)))
    verdict = make_verdict(make_run(), run, replace(run, checked=1))
    folders = [scalar.folder for scalar in list_scalars(verdict)]
    name = "mlp-adam-mwms_2-none.bounded"
    assert folders == [f"{name}/replica-0", f"{name}.2/replica-0"]


def test_odd_names_are_names_of_folders_and_numbers_stay_numbers():
    scalars = list(list_scalars(make_odd_verdict()))
    assert {tag.tag for tag in scalars} >= {f"norm/variable/{name}" for name in ODD}
    assert all(len(scalar.folder.split("/")) == 2 for scalar in scalars)
    assert all(scalar.folder.isascii() for scalar in scalars)
    errors = [s for s in scalars if s.tag.startswith("error_over_bound")]
    assert not any(math.isnan(value) for s in errors for value in s.values)


@pytest.mark.first(1)
@pytest.mark.parametrize("scenario", ["../../etc/x", "/etc/x", "..", "."])
def test_no_name_leads_out_of_the_folder(scenario: str):
    run = replace(make_checked_verdict().runs[0], scenario=scenario, tier="")
    for scalar in list_scalars(make_verdict(run)):
        first, _ = scalar.folder.split("/")
        assert first not in ("", ".", "..")
