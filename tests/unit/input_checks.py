"""What holds for any input: the unit tests give a few, the sweeps random ones."""

from __future__ import annotations

import json
import unicodedata
from xml.etree import ElementTree

import pytest
from verdict_samples import make_finding, make_run, make_verdict

from distbench.cluster import ClusterSpec
from distbench.errors import BadInputError
from distbench.escape import escape_controls
from distbench.report.junit import verdict_to_junit
from distbench.scenario import Scenario, scenario_from_json, scenario_to_json
from distbench.split import shard_slices, split_unevenly
from distbench.verdict import Status, Verdict
from distbench.verdict.document import verdict_from_json, verdict_to_json


def check_split(replicas: int, spare: int) -> None:
    sizes = split_unevenly(replicas + spare, replicas)
    assert len(sizes) == replicas
    assert min(sizes) >= 1
    assert sum(sizes) == replicas + spare
    rows = [row for part in shard_slices(sizes) for row in range(part.start, part.stop)]
    assert rows == list(range(replicas + spare))


def check_uneven(replicas: int) -> None:
    assert len(set(split_unevenly(4 * replicas, replicas))) > 1


def check_spec_text(text: str) -> None:
    try:
        spec = ClusterSpec.parse(text)
    except BadInputError:
        return
    assert ClusterSpec.parse(str(spec)) == spec


def check_resolved(text: str, gpus: int, cpus: int) -> None:
    try:
        spec = ClusterSpec.parse(text)
    except BadInputError:
        return
    resolved = spec.resolve(gpus=gpus, cpus=cpus)
    assert resolved.replicas >= 1
    assert resolved.device is not None
    assert "all" not in str(resolved)
    assert resolved.resolve(gpus=gpus, cpus=cpus) == resolved


def check_scenario_json(scenario: Scenario) -> None:
    assert scenario_from_json(scenario_to_json(scenario)) == scenario


def check_verdict_json(verdict: Verdict) -> None:
    document = verdict_to_json(verdict)
    # By their texts: nan is equal to nan here.
    assert repr(verdict_from_json(document)) == repr(verdict)
    json.loads(document, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def check_escaped(text: str) -> None:
    escaped = escape_controls(text)
    escaped.encode()
    # Python has no space but the plain one printed, and others harm nobody.
    spaces = {c for c in escaped if unicodedata.category(c) == "Zs"}
    assert all(c.isprintable() or c in spaces for c in escaped), escaped


def check_junit(text: str) -> None:
    run = make_run(
        Status.FAIL,
        scenario=text,
        message=text,
        detail=text,
        findings=(make_finding(variable=text, explanation=text),),
    )
    verdict = make_verdict(run, target=text, environment={text: text})
    ElementTree.fromstring(verdict_to_junit(verdict).encode())
