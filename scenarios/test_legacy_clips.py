"""Would catch clips in another order, and clips that TensorFlow refuses to combine.

https://github.com/tensorflow/tensorflow/issues/33929: for years they were an error
under every strategy; they still are one under central storage.
"""

from __future__ import annotations

import pytest

from distbench.errors import BadInputError


@pytest.mark.programs("clipping.py", "ValueThenNorm")
def test_two_clips_follow_the_sum(check):
    check().raise_for_status()


@pytest.mark.programs("clipping.py", "ValueBeforeTheSum")
def test_one_of_two_clips_before_the_sum_is_found(diagnose):
    first = diagnose()[0]
    assert (first.code, first.phase) == ("clip-before-reduction", "reduced_gradient")
    # Slices of single examples are what they are on one device too.
    assert first.variables == ("kernel", "bias")


@pytest.mark.scenarios(
    workloads=["linear"],
    optimizers=["sgd"],
    clusters=["central:2"],
    paths=["clipvalue", "clipnorm", "global-clipnorm"],
    kinds=["central"],
)
def test_central_storage_refuses_clips(check, case):
    verdict = check()
    assert {str(run.status) for run in verdict.runs} == {"refused"}
    assert case.path.replace("-", "_") in verdict.runs[0].message


@pytest.mark.programs("clipping.py", "ClipBesideTransformer", "TwoNorms")
def test_clips_that_exclude_each_other_are_one_clear_error(check, case):
    words = {
        "ClipBesideTransformer": "`clipnorm` cannot be set when `gradient_transformers",
        "TwoNorms": "Cannot accept both `clipnorm` and `global_clipnorm`",
    }
    with pytest.raises(BadInputError, match=words[case.optimizer]):
        check()
