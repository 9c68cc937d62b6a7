"""Targets: parsed without an import, loaded with the user's error and not ours."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from target_files import keep_imports, write

from distbench.errors import BadInputError
from distbench.samples.lazy import LazyModule
from distbench.target import (
    TargetRef,
    adopt_target,
    parse_target,
    target_from_json,
    target_to_json,
    write_pickled_target,
)
from distbench.target.loading import LoadError, load_target
from distbench.target.reading import check_source

pytestmark = pytest.mark.usefixtures(keep_imports.__name__)

_UNSPEAKABLE = """class Odd(Exception):
    def __str__(self):
        return 1 / 0
raise Odd
"""


def test_a_module_is_named_and_not_imported(tmp_path: Path) -> None:
    ref = parse_target("no.such.package:Class.method", tmp_path)
    assert (ref.kind, ref.module, ref.attribute) == (
        "import",
        "no.such.package",
        "Class.method",
    )
    assert ref.search_path == (str(tmp_path),)
    assert ref.describe() == "no.such.package:Class.method"


def test_a_file_is_made_absolute_and_not_run(tmp_path: Path) -> None:
    write(tmp_path, "raise SystemExit('run')")
    ref = parse_target("train.py:make", tmp_path)
    assert (ref.kind, ref.path) == ("file", str(tmp_path / "train.py"))
    assert ref.search_path == (str(tmp_path),)
    assert target_from_json(target_to_json(ref)) == ref


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train", r"no attribute.*Did you mean one of 'train.py:make', "),
        ("train.make", r"no attribute.*Did you mean 'train.py:make'\?"),
        ("train.mke", r"Did you mean one of 'train.py:make', "),
        ("a.train.make", r"names no attribute.*Expected .*:attribute'\.$"),
        ("train.py", r"Did you mean one of 'train.py:make', 'train.py:Program'\?"),
        ("", "names no attribute"),
        (":", "no name of an attribute"),
        (":make", "neither a module nor a file"),
        ("train.py::make", r"two colons.*Did you mean 'train.py:make'\?"),
        ("a/train.py::A::make", r"two colons.*Did you mean 'a/train.py:A.make'\?"),
        ("train.py:", "no name of an attribute"),
        ("train.py:make()", "no name of an attribute"),
        ("a b:make", "neither a module nor a file"),
        ("trian.py:make", r"no file '.*trian.py'.*Did you mean 'train.py'\?"),
        ("nofile.py:make", r"no file.*:attribute'\.$"),
        ("sub/train.py:make", "no folder '.*sub' either"),
        ("./train:make", r"no file.*Did you mean 'train.py'\?"),
        ("./text.txt:make", "does not end in '.py'"),
        ("/tmp/:make", "is a folder"),
        ("~nobody-of-that-name/train.py:make", "no folder '.*nobody-of-that-name'"),
    ],
)
def test_another_form_is_refused_with_a_hint(
    tmp_path: Path, text: str, message: str
) -> None:
    write(tmp_path, "def make(): ...\nclass Program: ...\ndef _hidden(): ...\n")
    write(tmp_path, "", "text.txt")
    with pytest.raises(BadInputError, match=message):
        parse_target(text, tmp_path)


def test_a_file_is_loaded_with_its_neighbours(tmp_path: Path) -> None:
    write(tmp_path, "RATE = 0.5", "neighbour_of_train.py")
    write(tmp_path, "import neighbour_of_train as n\nclass A:\n  rate = n.RATE\n")
    assert load_target(parse_target("train.py:A.rate", tmp_path)) == 0.5


def test_a_file_of_a_package_is_to_be_named_by_its_module(tmp_path: Path) -> None:
    for folder in ("pack", "pack/inner"):
        write(tmp_path, "", f"{folder}/__init__.py")
    write(tmp_path, "from ..rates import RATE", "pack/inner/train.py")
    hint = rf"Name it 'pack\.inner\.train:RATE', from the folder '{tmp_path}'\."
    with pytest.raises(BadInputError, match=f"relative import.*{hint}"):
        load_target(parse_target("pack/inner/train.py:RATE", tmp_path))
    # Or as a module, from the folder in which it lies.
    with pytest.raises(BadInputError, match=f"relative import.*{hint}"):
        load_target(parse_target("train:RATE", tmp_path / "pack" / "inner"))


def test_two_files_of_one_name_are_two_modules(tmp_path: Path) -> None:
    for name, value in (("a", 1), ("b", 2)):
        write(tmp_path, f"value = {value}", f"{name}/train.py")
    refs = [parse_target(f"{name}/train.py:value", tmp_path) for name in "ab"]
    assert [load_target(ref) for ref in refs] == [1, 2]


@pytest.mark.skipif(sys.platform != "linux", reason="names are text elsewhere")
def test_a_folder_may_have_a_name_that_is_no_text(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    write(tmp_path, "value = 5", f"{folder.name}/train.py")
    ref = parse_target("train.py:value", folder)
    assert load_target(target_from_json(target_to_json(ref))) == 5


def test_a_module_of_the_current_folder_is_loaded(tmp_path: Path) -> None:
    write(tmp_path, "value = 3", "package_of_test/module.py")
    ref = parse_target("package_of_test.module:value", tmp_path)
    assert load_target(ref) == 3


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import no_such_module", r"No module named.*train.py line 1: `import no_such"),
        ("\n1 / 0", r"ZeroDivisionError.*train.py line 2: `1 / 0`"),
        ("import json\njson.loads('x')", r"JSONDecodeError.*train.py line 2"),
        ("def f(:", r"SyntaxError.*train.py line 1"),
        ("raise SystemExit(3)", r"SystemExit: 3, at .*py line 1.* imports it, without"),
        (
            "import argparse\nparser = argparse.ArgumentParser()\n"
            "parser.add_argument('--rate', required=True)\nparser.parse_args()",
            r"line 4: `parser.parse_args\(\)` \(the following.*: --rate\)\. The bench",
        ),
        ("raise KeyboardInterrupt", "KeyboardInterrupt, at .*train.py line 1"),
        (_UNSPEAKABLE, "Odd: <exception str.. failed>, at .*train.py line 4"),
        ("raise ValueError('x' * 10**6)", r"xx \.\.\. \(\d+ characters left out\)"),
        (
            "raise RuntimeError('Devices cannot be modified after being initialized')",
            "started TensorFlow by then: do this where the script starts",
        ),
        ("mak = 1", r"'.*/train.py' has no attribute 'make'. Did you mean 'mak'\?"),
        (
            "import os\ndef adam(): ...\ndef _sgd(): ...\nclass Job: ...",
            r"has no attribute 'make'\. There is 'adam', 'Job'\.$",
        ),
    ],
    ids=[
        *("import", "raises", "library-raises", "syntax", "exit", "parser"),
        "interrupt",
        *("unspeakable", "long", "late", "attribute", "attributes"),
    ],
)
def test_a_file_that_cannot_be_loaded_says_why(
    tmp_path: Path, source: str, message: str
) -> None:
    write(tmp_path, source)
    with pytest.raises(BadInputError, match=message) as caught:
        load_target(parse_target("train.py:make", tmp_path))
    assert "target.py" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_file_that_parses_its_command_line_finds_no_arguments(tmp_path: Path) -> None:
    """As where it is run without any: those of the task are not its own."""
    text = "import argparse, sys\nparser = argparse.ArgumentParser()\n"
    text += "parser.add_argument('--rate', default=5)\n"
    path = write(tmp_path, text + "found = parser.parse_args().rate, sys.argv[0]")
    assert load_target(parse_target("train.py:found", tmp_path)) == (5, str(path))


def test_an_object_without_the_attribute_has_the_name_that_the_user_gave_it(
    tmp_path: Path,
) -> None:
    """Its repr would name the module as the bench does, and an address."""
    write(tmp_path, "class Made:\n    rate = 1\nmade = Made()")
    with pytest.raises(BadInputError, match=r"'made' has no.*'rat'.*mean 'rate'"):
        load_target(parse_target("train.py:made.rat", tmp_path))


def test_a_missing_module_is_named(tmp_path: Path) -> None:
    told = (
        r"No module named 'no_such_package'\. It was looked for in '.*' and what is "
        r"installed\. Expected package\.module:attribute, or path/to/file\.py:attribute"
    )
    with pytest.raises(BadInputError, match=told):
        load_target(parse_target("no_such_package.x:make", tmp_path))


def test_a_module_that_the_targets_own_lacks_is_not_looked_for(tmp_path: Path) -> None:
    write(tmp_path, "import no_such_package", "module_of_test.py")
    with pytest.raises(BadInputError, match="No module named") as raised:
        load_target(parse_target("module_of_test:make", tmp_path))
    assert "looked for" not in str(raised.value)


def test_a_pickle_goes_into_the_folder_of_the_run_and_nothing_else_does(
    tmp_path: Path,
) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "run").mkdir()
    ref = write_pickled_target(lambda: 7, tmp_path / "given", "seven")
    own = adopt_target(ref, tmp_path / "run", is_far=False)
    assert own.path.startswith(str(tmp_path / "run"))
    assert (own.describe(), load_target(own)()) == ("seven", 7)
    other = TargetRef(kind="import", module="a.b", attribute="c")
    assert adopt_target(other, tmp_path / "run", is_far=True) is other


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no groups")
def test_a_group_that_an_import_raises_is_told_with_what_it_holds(
    tmp_path: Path,
) -> None:
    source = "raise ExceptionGroup('both', [KeyError(1), OSError('no data')])"
    write(tmp_path, source)
    told = r"both \(2 sub-exceptions\); KeyError: 1; OSError: no data, at .* line 1"
    with pytest.raises(LoadError, match=told):
        load_target(parse_target("train.py:make", tmp_path))


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (b'raise OSError("no data:\\n  fetch it")', "OSError: no data: fetch it, at "),
        (b"def make(:", r"SyntaxError: invalid syntax, in .*own\.py line 1$"),
        (b"make = 1\0", "SyntaxError: source code string cannot contain null bytes$"),
        (
            b"make = 1\n\n# caf\xe9\n",
            r"SyntaxError: b'\\xe9' is no UTF-8.*'# coding: latin-1', in .* line 3$",
        ),
        (b"# caf\xe9\nmake = 1\n", r"SyntaxError: b'\\xe9' is no UTF-8.* line 1$"),
        (
            b"# coding: ascii\nmake = 1  # caf\xe9\n",
            "SyntaxError: 'ascii' codec can't decode byte 0xe9 in position ",
        ),
        (b"make = '\xe9'", r"SyntaxError: \(unicode error\) 'utf-8' codec .* line 1$"),
    ],
    ids=[
        "several-lines",
        "syntax",
        "no-text",
        "comment-in-latin",
        "comment-in-latin-first",
        "comment-not-as-declared",
        "name-in-latin",
    ],
)
def test_all_that_an_import_says_is_told(
    tmp_path: Path, source: bytes, told: str
) -> None:
    (tmp_path / "own.py").write_bytes(source)
    with pytest.raises(BadInputError, match=f"could not be loaded: {told}"):
        load_target(parse_target(f"{tmp_path}/own.py:make"))


def test_a_file_in_an_encoding_that_it_names_is_loaded(tmp_path: Path) -> None:
    source = b"# coding: latin-1\nmake = 'caf\xe9'  # caf\xe9\n"
    (tmp_path / "own.py").write_bytes(source)
    assert load_target(parse_target(f"{tmp_path}/own.py:make")) == "caf\xe9"


def test_a_file_that_is_gone_before_it_is_checked_is_told_by_who_loads_it(
    tmp_path: Path,
) -> None:
    file = write(tmp_path, "make = 1")
    ref = parse_target(f"{file}:make")
    file.unlink()
    (tmp_path / "run").mkdir()
    own = adopt_target(ref, tmp_path / "run", is_far=False)
    with pytest.raises(BadInputError, match="No such file"):
        load_target(own)


def test_a_local_function_travels_by_value(tmp_path: Path) -> None:
    factor = 7

    def multiply(x: int) -> int:
        return factor * x

    ref = write_pickled_target(multiply, tmp_path)
    assert ref.kind == "pickle"
    assert "multiply" in ref.describe()
    # Workers may be unable to import this test module.
    alone = TargetRef(kind="pickle", path=ref.path, attribute=ref.attribute)
    code = (
        "from distbench.target import TargetRef\n"
        "from distbench.target.loading import load_target\n"
        f"print(load_target({alone!r})(6))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
    )
    assert done.stdout == "42\n", done.stderr


def test_what_cannot_be_pickled_is_named(tmp_path: Path) -> None:
    file = (tmp_path / "open").open("w")
    with file, pytest.raises(BadInputError, match=r"<lambda>.*cannot be sent"):
        write_pickled_target(lambda: file, tmp_path)


def test_a_module_that_is_imported_late_may_be_pickled() -> None:
    late = pickle.loads(pickle.dumps(LazyModule("json")))
    assert late.dumps([1]) == "[1]"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def make(:", r"could not be loaded: SyntaxError: .*, in .*train.py line 1$"),
        ("return 3", r"SyntaxError: 'return' outside function, in .*train.py line 1$"),
        ("def mke(): ...", r"no attribute 'make'. Did you mean 'mke'\?"),
        ("def adam(): ...\nclass Job: ...", r"'make'. There is 'adam', 'Job'\.$"),
        ("", r"has no attribute 'make'\.$"),
        (
            "class Makes:\n    def __init__(self): ...\nif __name__ == '__main__': ...",
            r"'make'. Did you mean 'Makes'\?",
        ),
    ],
)
def test_what_a_file_cannot_have_is_told_before_tasks_start(
    tmp_path: Path, source: str, message: str
) -> None:
    write(tmp_path, source)
    ref = parse_target("train.py:make.inner", tmp_path)
    with pytest.raises(BadInputError, match=message):
        check_source(ref.path, ref.attribute)


@pytest.mark.parametrize(
    "source",
    [
        "make = 1",
        "from other import *",
        "for name in 'ab':\n    globals()['ma' + 'ke'] = name",
        "import sys\nsetattr(sys.modules[__name__], 'ma' + 'ke', 1)",
        "def __getattr__(name): ...",
        "exec('ma' + 'ke = 1')",
        "raise SystemExit  # make",
        "# coding: latin-1\nmake = 'é'",
        pytest.param(f"make = {'(' * 150}{')' * 150}", id="deep"),
    ],
)
def test_what_only_running_a_file_tells_is_left_to_its_tasks(
    tmp_path: Path, source: str
) -> None:
    write(tmp_path, source)
    check_source(str(tmp_path / "train.py"), "make")
    check_source(str(tmp_path / "gone.py"), "make")
