"""Runs scenarios and says what was seen: nothing is judged here."""

from distbench.observe.corrected import observe_corrected as observe_corrected
from distbench.observe.intermediates import (
    observe_intermediates as observe_intermediates,
)
from distbench.observe.launching import Launch as Launch
from distbench.observe.launching import start_one as start_one
from distbench.observe.observation import Observation as Observation
from distbench.observe.one_device import OneDevice as OneDevice
from distbench.observe.run import observe as observe
from distbench.observe.subject import OtherKerasError as OtherKerasError
from distbench.observe.subject import describe_subject as describe_subject
