"""Goes by the Keras that a target sets itself, as scripts do before they import it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from distbench.errors import BadInputError
from distbench.observe import OtherKerasError
from distbench.options import CheckOptions
from distbench.spelling import spell_given

Result = TypeVar("Result")


def follow_target(
    options: CheckOptions, attempt: Callable[[CheckOptions], Result]
) -> Result:
    """What an attempt with the options returns, or one with the target's own Keras.

    A script sets `TF_USE_LEGACY_KERAS` and imports TensorFlow then; tasks have imported
    it before they load the script, and have to be started anew.

    Args:
        options: Of a check.
        attempt: Starts tasks by options, and has one of them load the target.

    Raises:
        BadInputError: The target wants another Keras than the options name.
    """
    try:
        return attempt(options)
    except OtherKerasError as other:
        if options.keras is not None:
            value = 1 if other.keras == "legacy" else 0
            raise BadInputError(
                f"The target sets TF_USE_LEGACY_KERAS to {value} as it is imported, "
                f"beside {spell_given('keras', options.keras)}. Expected: one of the "
                "two Keras for all of a process. Leave one of the two settings out."
            ) from None
        return follow_target(replace(options, keras=other.keras), attempt)
