"""What is told of a subject that cannot be checked, without a check of each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import distbench

pytestmark = pytest.mark.cluster
SUBJECTS = Path(__file__).with_name("refused_subjects.py")
ACCEPTED = {
    "Program": 2,
    "View": 2,
    "Pairs": 2,
    "Queue": 2,
    "HeldAnew": 2,
    "NoOptimizer": 0,
    "Text": 2,
}
"""With the optimizers whose steps are looked at."""
REFUSED = [
    ("Group", r"Received: a set, whose order.*Return a list\. Slots would"),
    ("Yielding", r"Received: a generator, which can be read once\. Return a list"),
    ("Cycle", r"Received: a cycle, which can be read once"),
    ("MadeAnew", r"returns something else.*Received: .* type 'SGD', which is not what"),
    ("ObjectMadeAnew", r"something else.*type 'Holder', which.*Make it once, in build"),
    ("OneMoreMadeAnew", r"something else after the first step"),
    (
        "OtherLengths",
        r"^data\(0\) of 'OtherLengths' must return.*\['inputs': \(4, 1\), 'targets': "
        r"\(3, 1\)\]\. Give each part a first axis, with as many examples",
    ),
    (
        "SeveralRows",
        r"as the others have\. If 7 rows of 'unlabelled' belong to an example, reshape "
        r"it to \(8, 7, 1\) here, and back in the step\.$",
    ),
    ("OneNumber", r"the shapes \['0': \(4, 1\), '1': \(\)\]\. Give each part"),
    ("EmptyReturned", r"Received: no array\. Return the batch\.$"),
    ("NothingReturned", r"Received: .*'NoneType'\. Return the batch\.$"),
    ("PartOfNothing", r"type 'NoneType' at '2'\. Leave that part out"),
    ("YieldsBatches", r"type 'generator'\. Return one batch, that of the step"),
    ("GivesDataset", r"Return one batch of it.*bring that of a train program in data"),
    ("GivesParts", r"'Parts'\. Return an array, or a tuple, list or dictionary of"),
    (
        "OddObjects",
        r"^data\(0\) of 'OddObjects' must return arrays of numbers or text.*dtype "
        r"object at '1', with objects of type NoneType, int\. Convert it",
    ),
    ("Dates", r"an array of dtype datetime64\[D\] at 'day'\. Convert it"),
    ("NeedsPath", r"'NeedsPath' is a class.*takes \(path\)\..*program = NeedsPath\("),
    ("DataAsValue", r"brings no data.*Received: 'data' that is an object of type 'tup"),
    ("WithoutStep", r"^Train program 'WithoutStep' lacks replica_step\."),
    ("Maker", r"type 'Maker', whose class was the target.*: name an instance"),
    ("Maker.make", r"takes \(self, rate\)\..*return Maker\(\)\.make\(\.\.\.\)\."),
    ("make_model", r"^Keras model 'make_model': data is called as data\(step\)\. Rec"),
]


def _ask_all(names: list[str]) -> dict[str, str | int]:
    """Runs in a task: why each subject is refused, or how many optimizers it has."""
    from distbench.errors import BadInputError
    from distbench.scenario import Scenario
    from distbench.scenario.choices import MODEL, PROGRAM
    from distbench.target import parse_target
    from distbench.target.loading import load_target
    from distbench.worker.families import name_family
    from distbench.worker.process.strategies import configure_runtime, make_strategy
    from distbench.worker.state.reachable import find_held
    from distbench.worker.stepping.refused import check_optimizers
    from distbench.worker.subjects.kinds import make_program, recognise_subject

    workloads = {"optimizer": "linear", "model": MODEL, "program": PROGRAM}
    scenario = Scenario(target="told", workload="linear", cluster="one@cpu")
    configure_runtime(scenario.spec, "worker", 0)
    strategy = make_strategy(scenario.spec)

    def ask(name: str) -> int:
        subject = load_target(parse_target(f"{SUBJECTS}:{name}"))
        workload = workloads[recognise_subject(subject)]
        program = make_program(
            subject, Scenario(target=name, workload=workload, cluster="one@cpu")
        )
        program.build(strategy)
        given = list(program.optimizers())
        program.data(0)
        check_optimizers(program, given)
        return len(find_held(given, lambda item: name_family(item) is not None))

    told: dict[str, str | int] = {}
    for name in names:
        try:
            told[name] = ask(name)
        except BadInputError as error:
            told[name] = str(error)
    return told


@pytest.fixture(scope="module")
def told() -> dict[str, str | int]:
    names = [*ACCEPTED, *(name for name, _ in REFUSED)]
    (found,) = distbench.run(_ask_all, "one", args=(names,)).values()
    return found


@pytest.mark.parametrize("name", list(ACCEPTED))
def test_what_can_be_checked_is_not_refused(
    told: dict[str, str | int], name: str
) -> None:
    assert told[name] == ACCEPTED[name]


@pytest.mark.parametrize(("name", "words"), REFUSED, ids=[name for name, _ in REFUSED])
def test_a_refusal_says_what_to_do(
    told: dict[str, str | int], name: str, words: str
) -> None:
    assert re.search(words, str(told[name])), told[name]
