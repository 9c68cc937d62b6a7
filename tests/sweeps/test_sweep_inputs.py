"""What holds for any input, for many random ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from input_checks import (
    check_escaped,
    check_junit,
    check_resolved,
    check_scenario_json,
    check_spec_text,
    check_split,
    check_uneven,
    check_verdict_json,
)

from distbench.codes import CODES
from distbench.scenario import Scenario
from distbench.scenario.choices import PATHS, WORKLOADS
from distbench.trace import PHASES
from distbench.verdict import Finding, Run, Status, Verdict, Worst

floats = st.floats(allow_nan=True, allow_infinity=True)
text = st.text(max_size=12)
findings = st.builds(
    Finding,
    code=st.sampled_from(sorted(CODES)),
    phase=st.sampled_from(PHASES),
    step=st.integers(-1, 9),
    variable=text,
    replicas=st.lists(st.integers(0, 9), max_size=3).map(tuple),
    ratio=st.none() | floats,
    error=floats,
    bound=floats,
    explanation=text,
    confidence=floats,
    origin=st.sampled_from(["subject", "framework"]),
    warning=st.booleans(),
    variables=st.lists(text, max_size=3).map(tuple),
)
runs = st.builds(
    Run,
    scenario=text,
    cluster=text,
    path=text,
    tier=text,
    status=st.sampled_from(list(Status)),
    seconds=st.floats(0, 1e6),
    checked=st.integers(0, 10**6),
    worst=st.none()
    | st.builds(Worst, phase=text, variable=text, error_over_bound=floats),
    findings=st.lists(findings, max_size=2).map(tuple),
    references=st.dictionaries(text, text, max_size=2),
    message=text,
    detail=text,
    workload=text,
)


@given(st.integers(1, 40), st.integers(0, 300))
def test_every_example_is_in_one_shard_and_no_shard_is_empty(
    replicas: int, spare: int
) -> None:
    check_split(replicas, spare)


@given(st.integers(2, 40))
def test_shards_are_uneven_where_four_examples_per_replica_are_there(
    replicas: int,
) -> None:
    check_uneven(replicas)


@given(
    st.text(max_size=20)
    | st.from_regex(r"(mwms|ps|one|mirrored):?\w{0,4}[x+@]?\w{0,3}")
)
def test_any_text_is_a_spec_that_prints_back_or_bad_input(text: str) -> None:
    check_spec_text(text)


@given(
    st.sampled_from(
        [
            "one",
            "mirrored:all",
            "central:3",
            "mwms:allxall",
            "mwms:2x3",
            "mwms:allx2",
            "mwms:5",
            "ps:all+2",
            "ps:3+all",
        ]
    ),
    st.sampled_from(["", "@gpu", "@cpu"]),
    st.integers(0, 9),
    st.integers(1, 9),
)
def test_a_resolved_spec_is_closed(
    text: str, device: str, gpus: int, cpus: int
) -> None:
    check_resolved(text + device, gpus, cpus)


@given(
    st.builds(
        Scenario,
        target=st.text(min_size=1, max_size=20),
        workload=st.sampled_from(["", *WORKLOADS]),
        cluster=st.sampled_from(["one", "mwms:3", "ps:2+1", "mirrored:all@gpu"]),
        path=st.sampled_from(list(PATHS)),
        steps=st.integers(1, 99),
        dtype=st.sampled_from(["float32", "bfloat16"]),
        seed=st.integers(0, 2**31 - 1),
        keras=st.sampled_from([None, "legacy", "3"]),
        jit=st.sampled_from([None, True, False]),
        timeout_s=st.floats(0.1, 1e4),
    )
)
def test_a_scenario_comes_back_from_json(scenario: Scenario) -> None:
    check_scenario_json(scenario)


@given(st.lists(runs, max_size=3), text)
def test_a_verdict_comes_back_from_json(some: list[Run], target: str) -> None:
    environment = {"python": "3.11"}
    check_verdict_json(
        Verdict(target=target, runs=tuple(some), environment=environment)
    )


@given(st.text())
def test_escaped_text_is_printable(text: str) -> None:
    check_escaped(text)


@given(st.text())
def test_junit_is_well_formed_whatever_the_names(text: str) -> None:
    check_junit(text)
