"""Whatever a file from elsewhere holds, it is read or refused, and never run."""

from __future__ import annotations

import copy
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from verdict_samples import make_finding, make_run, make_verdict

from distbench.errors import BadInputError
from distbench.scenario import Scenario, scenario_from_json, scenario_to_json
from distbench.target import parse_target
from distbench.trace import Trace, TraceKey
from distbench.trace.files import read_trace, write_trace
from distbench.verdict import Status
from distbench.verdict.document import verdict_from_json, verdict_to_json

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
VERDICT = json.loads(
    verdict_to_json(make_verdict(make_run(Status.FAIL, findings=(make_finding(),))))
)
SCENARIO = json.loads(scenario_to_json(Scenario(target="a:b", split=(5, 3))))


@st.composite
def damaged(draw: st.DrawFn, document: Any) -> str:
    """A document with one of its values, somewhere, taken out or put another for."""
    whole = place = copy.deepcopy(document)
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = draw(st.sampled_from(keys))
        inner = place[key]
        if isinstance(inner, (dict, list)) and inner and draw(st.booleans()):
            place = inner
            continue
        if draw(st.booleans()):
            del place[key]
        else:
            place[key] = draw(json_values)
        return json.dumps(whole)


@given(damaged(VERDICT) | json_values.map(json.dumps) | st.text(max_size=40))
def test_any_text_is_a_verdict_or_bad_input(text: str) -> None:
    try:
        verdict = verdict_from_json(text)
    except BadInputError:
        return
    assert verdict_from_json(verdict_to_json(verdict)).status == verdict.status


@given(damaged(SCENARIO) | json_values.map(json.dumps) | st.text(max_size=40))
def test_any_text_is_a_scenario_or_bad_input(text: str) -> None:
    try:
        scenario = scenario_from_json(text)
    except BadInputError:
        return
    assert scenario_from_json(scenario_to_json(scenario)) == scenario


@given(
    st.text(max_size=40)
    | st.from_regex(r"\A[\w./~$ -]{0,12}(\.py)?:?[\w.]{0,8}\Z")
    | st.tuples(st.text(max_size=12), st.text(max_size=12)).map(":".join)
)
def test_any_text_is_a_target_or_bad_input(text: str) -> None:
    try:
        target = parse_target(text)
    except BadInputError:
        return
    assert target.describe()


@given(st.data())
def test_any_file_is_a_trace_or_bad_input(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        key = TraceKey(step=0, phase="loss")
        values = {key: np.float32(1.5)}
        trace = Trace(name="a", replicas=1, shards=(1,), variables=(), values=values)
        write_trace(trace, folder, "part")
        written = json.loads((folder / "part.json").read_text())
        (folder / "part.json").write_text(data.draw(damaged(written)))
        arrays = folder / "part.npz"
        if data.draw(st.booleans()):
            content = bytearray(arrays.read_bytes())
            content[data.draw(st.integers(0, len(content) - 1))] ^= 0xFF
            arrays.write_bytes(content)
        try:
            read_trace(folder, "part")
        except BadInputError:
            return
