"""Scripts that show a finding: what goes in, how long they get, what is refused."""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import replace
from typing import Any

import pytest
from failed_runs import OUTCOME, SETUP, make_failed
from verdict_samples import EVIL, make_run, make_verdict

from distbench import digits
from distbench.errors import BadInputError
from distbench.repro.case import pick_case
from distbench.repro.paths import WRITTEN_PATHS
from distbench.repro.script import MOST_LINES, write_script
from distbench.scenario.choices import MODEL, PATHS, PIPELINE, PROGRAM, WORKLOADS
from distbench.verdict import Outcome, Run, Status, Verdict


def write(run: Run, **changes) -> str:
    verdict = make_verdict(run, **changes)
    return write_script(pick_case(verdict), verdict.environment)


def show(phase: str, **changes: Any) -> Outcome:
    """A number of the model, or of an optimizer."""
    index = 0 if phase in ("variable", "iterations") else -1
    return replace(OUTCOME, phase=phase, index=index, **changes)


@pytest.mark.parametrize("workload", sorted({*WORKLOADS} - {"counting"}))
@pytest.mark.parametrize("cluster", ["mirrored:2", "central:4", "mwms:2", "ps:2+1"])
def test_a_script_of_a_workload_is_short_and_parses(workload, cluster):
    setup = {**SETUP, "split": {"central:4": [5, 4, 4, 3], "ps:2+1": [8]}.get(cluster)}
    setup["split"] = setup["split"] or [5, 3]
    for phase, variable in (("variable", "kernel"), ("slot", "SGD/kernel/momentum")):
        outcome = show(phase, variable=variable)
        run = make_failed(outcome, workload=workload, cluster=cluster, setup=setup)
        text = write(run)
        ast.parse(text)
        assert text.count("\n") <= MOST_LINES
        assert "import distbench" not in text


def test_every_path_can_be_written():
    assert set(WRITTEN_PATHS) == set(PATHS)
    for path in PATHS:
        text = write(make_failed(path=path, cluster="mirrored:2"))
        ast.parse(text)
        assert text.count("\n") <= MOST_LINES


@pytest.mark.parametrize("kind", [PROGRAM, MODEL], ids=["program", "model"])
@pytest.mark.parametrize("cluster", ["mirrored:2", "mwms:2", "ps:1+1"])
def test_what_brings_its_own_data_gets_a_script(kind, cluster):
    setup = {**SETUP, "split": [8] if cluster == "ps:1+1" else [4, 4]}
    for phase in ("variable", "slot", "iterations"):
        outcome = show(phase)
        text = write(make_failed(outcome, workload=kind, cluster=cluster, setup=setup))
        ast.parse(text)
        assert text.count("\n") <= MOST_LINES


@pytest.mark.parametrize("kind", [PROGRAM, "counting"])
@pytest.mark.parametrize("phase", ["variable", "slot", "iterations"])
def test_steps_in_flight_are_scheduled_before_they_are_waited_for(kind, phase):
    setup = {**SETUP, "split": [8], "in_flight": 4}
    outcome = show(phase, step=1)
    text = write(
        make_failed(outcome, workload=kind, cluster="ps:2+1", setup=setup),
    )
    ast.parse(text)
    assert text.count("\n") <= MOST_LINES
    assert "range(0, STEPS * 4, 4)" in text
    assert text.index("coordinator.schedule(") < text.index("coordinator.join()")
    # All rounds, and all elements: where a race shows is chance.
    assert ", 3, 1, tf.float32" in text
    assert "numpy()[1, 1]" not in text


@pytest.mark.parametrize("cluster", ["mirrored:2", "central:2", "mwms:2"])
@pytest.mark.parametrize("resized", [{}, {"2": [3, 2]}], ids=["even", "late"])
@pytest.mark.parametrize("code", ["mean-of-means", "raises", "examples-repeated"])
def test_a_cluster_reads_its_pipeline_before_one_device_trains(cluster, resized, code):
    outcome = replace(OUTCOME, step=2) if code == "mean-of-means" else None
    setup = {**SETUP, "split": [4, 4], "resized": resized}
    run = make_failed(outcome, code, workload=PIPELINE, cluster=cluster, setup=setup)
    text = write(run)
    ast.parse(text)
    assert text.count("\n") <= MOST_LINES
    assert ("batches = read(strategy)" in text) == (outcome is not None)
    assert ("found[2] = found[late[0]]" in text) == bool(resized and outcome)
    assert ("collections.Counter" in text) == (code == "examples-repeated")


@pytest.mark.parametrize(("asked", "given"), [(60.0, 60), (120.0, 600)])
def test_a_script_has_as_long_as_its_check_had(asked, given):
    """Where nobody asked for a deadline it was longer while tasks computed."""
    text = write(make_failed(setup={**SETUP, "timeout_s": asked}))
    assert f"signal.alarm({given})" in text


def test_a_script_has_the_weight_of_the_losses_with_all_digits():
    text = write(make_failed(setup={**SETUP, "loss_weight": 2.0**-20}))
    assert "9.5367431640625e-07 * " in text


@pytest.mark.parametrize("cluster", ["mirrored:2", "mwms:2", "ps:1+1"])
def test_a_batch_of_another_size_is_shared_out_as_it_was(cluster):
    split = {"split": [8], "resized": {"1": [5]}}
    if cluster != "ps:1+1":
        split = {"split": [5, 3], "resized": {"1": [3, 2], "2": [1, 1]}}
    outcome = replace(OUTCOME, step=1)
    setup = {**SETUP, **split}
    text = write(make_failed(outcome, workload=PROGRAM, cluster=cluster, setup=setup))
    ast.parse(text)
    part = "slice(0, 5)" if cluster == "ps:1+1" else "slice(0, 3), slice(3, 5)"
    assert f"{{1: [{part}]}}.get(number, cuts)" in text


@pytest.mark.parametrize("kind", ["linear", "embedding", PROGRAM, MODEL], ids=str)
@pytest.mark.parametrize("cluster", ["mirrored:2", "mwms:2", "ps:1+1"])
@pytest.mark.parametrize("after", [0, 1])
def test_one_device_saves_what_the_cluster_restores(kind, cluster, after):
    setup = {**SETUP, "restore_from": "one@cpu", "restore_after": after}
    setup["split"] = [8] if cluster == "ps:1+1" else [4, 4]
    text = write(make_failed(workload=kind, cluster=cluster, setup=setup))
    ast.parse(text)
    assert text.count("\n") <= MOST_LINES
    assert re.search(rf"early = 3 if .*get_strategy\(\)\) else {after}\n", text)
    assert text.count("(kept.write if alone else kept.restore)") == 1
    # The first step of the cluster makes slots: before it, or over them.
    train = text.index("for i, number" if kind != MODEL else "early and model.fit")
    assert train < text.index("kept.write") < text.index("return [np.float64")


@pytest.mark.parametrize(
    ("partitioner", "words"),
    [
        ("fixed:2", "FixedShardsPartitioner(2)"),
        ("min:64:3", "MinSizePartitioner(64, 3)"),
        ("max:256", "MaxSizePartitioner(256)"),
    ],
)
@pytest.mark.parametrize("outcome", [OUTCOME, None], ids=["number", "raises"])
def test_what_comes_of_shards_gets_a_script_with_shards(partitioner, words, outcome):
    setup = {**SETUP, "split": [8], "partitioner": partitioner}
    run = make_failed(
        outcome, "" if outcome else "raises", cluster="ps:2+1", setup=setup
    )
    text = write(run)
    ast.parse(text)
    assert words in text
    assert text.count("CUT(v.shape") == (outcome is not None)


@pytest.mark.parametrize(("reduction", "word"), [("sum", "SUM"), ("mean", "MEAN")])
def test_a_loss_is_put_together_as_the_program_does(reduction, word):
    outcome = replace(
        OUTCOME, phase="loss", variable="", element=(), reduction=reduction
    )
    assert f'"{word}"' in write(make_failed(outcome, workload=PROGRAM))


def test_a_later_step_may_be_off_by_the_bound_of_each_step():
    outcome = replace(OUTCOME, step=2)
    text = write(make_failed(outcome))
    assert "STEPS" in text
    assert repr(3 * OUTCOME.bound) in text


@pytest.mark.parametrize("given", [{"TF_ENABLE_ONEDNN_OPTS": "0"}, {}])
def test_kernels_are_those_that_the_run_had(given):
    text = write(make_failed(OUTCOME), environment={"variables": given})
    assert ("'TF_ENABLE_ONEDNN_OPTS': '0'" in text) == bool(given)


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (show("slot", variable="m/kernel#2"), "== 'm/kernel'][1]"),
        (show("slot", variable="m/kernel"), "== 'm/kernel'][0]"),
        (replace(show("iterations"), index=1), "hasattr(o, 'iterations')][1].iterat"),
        (replace(show("slot"), index=3), "v = program.variables()[3]"),
    ],
    ids=["second-of-a-name", "first", "second-counter", "listed-by-the-program"],
)
def test_of_several_optimizers_the_wrong_one_is_read(outcome, words):
    text = write(make_failed(outcome, workload=PROGRAM, cluster="mirrored:2"))
    ast.parse(text)
    assert words in text


def test_an_exception_of_the_cluster_is_shown_without_numbers():
    text = write(make_failed(None, code="raises"))
    ast.parse(text)
    assert "the cluster raises" in text


@pytest.mark.parametrize("name", [EVIL, "\"'\"\"\"'''\nimport os\n#", "\\", "${x}$y"])
def test_names_cannot_become_code(name, tmp_path):
    folder = tmp_path / "a'\"\n\\ $x b"
    folder.mkdir()
    (folder / "my'file.py").write_text("")
    target = f"{folder}/my'file.py:make"
    outcome = show("slot", variable="m")
    settings = {"cluster": "mirrored:2", "setup": {**SETUP, "target": target}}
    plain = make_failed(outcome, **settings)
    evil = make_failed(replace(outcome, variable=name), **settings)
    environment = {
        "tensorflow": name,
        "variables": {"TF_USE_LEGACY_KERAS": name, "OTHER": name},
    }
    texts = [write(plain, environment={}), write(evil, environment=environment)]
    first, second = (list_nodes(text) for text in texts)
    added = ["Constant", "Constant"]  # TF_USE_LEGACY_KERAS and what it is
    assert sorted(second) == sorted([*first, *added])


@pytest.mark.parametrize("stem", ["json", "my-file"], ids=["taken", "no-name"])
def test_a_file_is_not_mistaken_for_another_module(stem, tmp_path, monkeypatch):
    places = {}
    for name in (stem, "only_here"):
        path = tmp_path / f"{name}.py"
        path.write_text("def make(): return 'mine'\n")
        target = {**SETUP, "target": f"{path}:make"}
        text = write(make_failed(cluster="mirrored:2", setup=target))
        lines = text.splitlines()
        end = next(i for i, line in enumerate(lines) if "subject = " in line)
        start = next(i for i, line in enumerate(lines) if "sys.path.insert" in line)
        places[name] = "\n".join(lines[start : end + 1])
        known: dict[str, object] = {}
        monkeypatch.setattr(sys, "path", list(sys.path))
        monkeypatch.setattr(sys, "modules", dict(sys.modules))
        exec(f"import importlib.util, sys\n{places[name]}", known)
        assert known["subject"]() == "mine"  # type: ignore[operator]
    assert "spec_from_file" in places[stem]
    assert "spec_from_file" not in places["only_here"]


def list_nodes(text: str) -> list[str]:
    return [type(node).__name__ for node in ast.walk(ast.parse(text))]


def change_setup(**changes) -> Run:
    return make_failed(setup={**SETUP, **changes})


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (make_run(Status.PASS), "no finding to show.*Received: pass"),
        (make_failed(setup={}), "key 'setup'.*an older distbench"),
        (change_setup(seed="1; import os"), "'seed' must be of type int.*import os"),
        (change_setup(seed=True), "'seed' must be of type int"),
        (change_setup(steps=0), "steps must be 1 or more"),
        (change_setup(dtype="complex64"), "dtype 'complex64' is not known"),
        (change_setup(split=[5, "3"]), "'split' must be of type int"),
        (change_setup(split=[5, 3, 2]), "one share per replica"),
        (change_setup(target="lambda"), "handed over as an object"),
        (change_setup(target="/no/such.py:make"), "there is no file"),
        (change_setup(target="a.b:c;os"), "no name of an attribute"),
        (change_setup(restore_from="mirrored:2"), "depends on what mirrored:2 saved"),
        (
            make_failed(
                cluster="ps:2+1",
                setup={**SETUP, "split": [8], "in_flight": 2, "restore_from": "one"},
            ),
            "depends on a checkpoint and steps in flight",
        ),
        (
            make_failed(
                workload=PIPELINE, cluster="ps:2+1", setup={**SETUP, "split": [8]}
            ),
            "depends on an input pipeline of parameter servers",
        ),
        (
            make_failed(workload=PIPELINE, setup={**SETUP, "restore_from": "one"}),
            "depends on a checkpoint and an input pipeline",
        ),
        (
            make_failed(workload=MODEL, setup={**SETUP, "resized": {"2": [3, 2]}}),
            "depends on batches of several sizes in 'fit'",
        ),
        (
            make_failed(setup={**SETUP, "given_draws": True}),
            "depends on random numbers that its steps were given",
        ),
        (
            make_failed(workload=MODEL, setup={**SETUP, "loss_weight": 1024.0}),
            "depends on gradients that are multiplied.*subject differentiates by 1024",
        ),
        (
            make_failed(setup={**SETUP, "resized": {"0": ["os", 2]}}),
            "'resized' must be of type int",
        ),
        (make_failed(workload="nonsense"), "Workload 'nonsense' is not known"),
        (make_failed(cluster="mwms:9x"), "Cluster spec 'mwms:9x' is not known"),
        (make_failed(cluster="mwms:2@gpu"), "cannot be started by a single script"),
        (make_failed(path="sideways"), "Aggregation path 'sideways' is not known"),
        (make_failed(code="nonsense"), "'nonsense' is not known"),
        (
            make_failed(
                show("slot"),
                cluster="ps:2+1",
                setup={**SETUP, "split": [8], "partitioner": "fixed:2"},
            ),
            "depends on what slots in shards hold",
        ),
        (make_failed(code=["a"]), "'code' must be of type str"),
        (make_failed(None), "names no number"),
        (make_failed(replace(OUTCOME, index="0]; os")), "outcome of a finding must"),
        (make_failed(replace(OUTCOME, bound=float("inf"))), "outcome of a finding"),
        (make_failed(replace(OUTCOME, phase="reduced_gradient")), "must name a phase"),
        (
            make_failed(
                show("slot"),
                path="aggregator-two-stage",
                workload="regularized",
            ),
            "Expected at most 59",
        ),
    ],
)
def test_what_cannot_be_shown_gets_one_clear_error(run, words):
    with pytest.raises(BadInputError, match=words):
        write(run)


def test_an_environment_that_is_none_is_left_out():
    assert "TensorFlow None" in write(make_failed(), environment=["a"])


def test_the_wanted_scenario_is_shown():
    runs = (make_failed(), make_failed(scenario="other", cluster="mirrored:2"))
    verdict = make_verdict(*runs)
    assert pick_case(verdict).spec.kind == "mwms"
    assert pick_case(verdict, "other").spec.kind == "mirrored"
    with pytest.raises(BadInputError, match="No failed run has the id 'third'"):
        pick_case(verdict, "third")


def test_a_run_that_cannot_be_shown_is_passed_over():
    verdict = make_verdict(make_failed(None), make_failed(workload="mlp"))
    assert pick_case(verdict).run.workload == "mlp"


def test_digits_without_scikit_learn_are_bad_input(monkeypatch):
    monkeypatch.setattr(digits.importlib.util, "find_spec", lambda _: None)
    digits.load_digits.cache_clear()
    with pytest.raises(BadInputError, match=r"distbench\[scenarios\]"):
        write(make_failed(workload="mlp"))


def test_a_verdict_without_runs_has_nothing_to_show():
    with pytest.raises(BadInputError, match="no finding to show"):
        pick_case(Verdict(target="a:b", runs=()))
