"""The words of the command line: options in, bad usage refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from verdict_samples import make_run, make_verdict

from distbench.options import CheckOptions
from distbench.verdict import Verdict


def test_every_option_arrives(play, call, tmp_path: Path) -> None:
    seen = []

    def check_target(target, options, progress) -> Verdict:
        seen.append((target, options))
        return make_verdict(make_run())

    play(check_target)
    line = (
        "check a.b:c -c mwms:2 -c mirrored:2 --path user --path none --tier exact "
        "--steps 5 --workload mlp --dtype float64 --seed 4 --split 5,3 --examples 8 "
        "--only some-id --keras legacy --jit on --expect nonfinite --require-gpus 2 "
        f"--timeout 9.5 --keep {tmp_path}/kept"
    )
    assert call(*line.split()) == 0
    [(target, options)] = seen
    assert target.describe() == "a.b:c"
    assert options == CheckOptions(
        clusters=("mwms:2", "mirrored:2"),
        paths=("user", "none"),
        tiers=("exact",),
        steps=5,
        workloads=("mlp",),
        dtype="float64",
        seed=4,
        split=(5, 3),
        examples=8,
        only="some-id",
        keras="legacy",
        jit=True,
        expect=("nonfinite",),
        require_gpus=2,
        timeout_s=9.5,
        keep=tmp_path / "kept",
    )
    assert (tmp_path / "kept").is_dir()


def test_steps_in_flight_are_asked_for(play, call) -> None:
    seen = []
    play(lambda t, options, p: seen.append(options) or make_verdict(make_run()))
    assert call("check", "a.b:c", "-c", "ps:2+1", "--in-flight", "8") == 0
    assert seen == [CheckOptions(clusters=("ps:2+1",), in_flight=8)]
    assert call("check", "a.b:c", "-c", "mwms:2", "--in-flight", "8") == 2


def test_without_options_the_defaults_hold(play, call) -> None:
    seen = []
    play(lambda t, options, p: seen.append(options) or make_verdict(make_run()))
    assert call("check", "a.b:c") == 0
    assert seen == [CheckOptions()]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("check", "Missing argument 'TARGET'"),
        ("check a.b", "names no attribute"),
        ("check no/file.py:x", "no file"),
        ("check a.b:c -c mwm:2", "Did you mean 'mwms:2'"),
        ("check a.b:c -c one --split 5,3", "Cluster 'one': the split must have one"),
        ("check a.b:c -c mwms:3 --examples 2", "at least one example per replica"),
        ("check a.b:c -c mwms:2x2@cpu", "mwms:4@cpu"),
        ("check a.b:c --path men", "Aggregation path 'men'"),
        ("check a.b:c --tier exakt", "Did you mean 'exact'"),
        ("check a.b:c --workload x", "Workload 'x'"),
        ("check a.b:c --steps 0", "--steps must be 1 or more"),
        ("check a.b:c --steps two", "'two'"),
        ("check a.b:c --timeout long", "'long'"),
        ("trace show x --step first", "'first'"),
        ("check a.b:c --dtype int8", "dtype 'int8'"),
        ("check a.b:c --jit maybe", "--jit must be 'on' or 'off'"),
        ("check a.b:c --split 5+3", "such as 5,3. Received: '5+3'"),
        ("check a.b:c --split \uff15,\uff13", "such as 5,3. Received: "),
        ("check a.b:c --json - --junit -", "Each report needs a file of its own"),
        ("check a.b:c --keras 2", "keras '2'"),
        ("check a.b:c --expect x", "Finding code 'x'"),
        ("check a.b:c --engine rai", "Did you mean 'ray'"),
        ("check a.b:c --timeout 0", "--timeout must be"),
        ("check a.b:c --json /no/folder/x", "no folder"),
        ("check a.b:c --json x --html ./x", "Each report needs a file of its own"),
        ("check a.b:c --expect xyz", "46 names (see 'distbench list codes').\n"),
        ("check a.b:c --color", "No such option"),
        ("chekc", "No such command"),
        ("explain mean-of-mean", "Did you mean 'mean-of-means'"),
        ("explain clip", "Did you mean 'clip-before-reduction'"),
        ("list coeds", "Did you mean 'codes'"),
    ],
)
def test_bad_usage_is_one_clear_message(call, capsys, line: str, message: str) -> None:
    assert call(*line.split()) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert "Traceback" not in shown.err
    assert shown.out == ""


@pytest.mark.parametrize(
    "words",
    [("--json", ""), ("--partitioner", ""), ("-c", ""), ("--keep=",), ("--only=",)],
    ids=" ".join,
)
def test_an_empty_value_is_refused(call, capsys, words: tuple[str, ...]) -> None:
    """As of `--keep "$FOLDER"`: traces would be kept where one is."""
    assert call("check", "a.b:c", *words) == 2
    option = words[0].removesuffix("=")
    assert f"{option} has an empty value" in capsys.readouterr().err
