"""The three ways in which a run can end badly, as three exception types.

Bad input is the caller's to mend, a broken cluster is the machine's, and wrong
numbers are the subject's. They are kept apart so that none is blamed for another:
the command line turns each into its own exit code.
"""

from __future__ import annotations


class BadInputError(ValueError):
    """The caller asked for something that cannot be run.

    The message is one sentence for the user: what, where, expected, received and
    what to do next. It is shown without a traceback.
    """


class ClusterError(RuntimeError):
    """A cluster could not be started, died or ran into its deadline.

    Never a statement about the subject. `detail` holds what helps to debug it: the
    log tails and the Python stacks of the tasks.
    """

    def __init__(self, message: str, *, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail


class VerdictFailedError(AssertionError):
    """A check ended with wrong numbers; the message is the diagnosis."""
