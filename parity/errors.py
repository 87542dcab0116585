"""The two families of errors: what the user can fix, and what we must fix.

Every message is one line: what happened and where; ``next_step`` says what to do about it.
"""

from __future__ import annotations

from parity.status import ExitStatus


class ParityError(Exception):
    """Something the user can fix.

    Cause: input, settings or the machine. Way out: stands in ``next_step``.
    """

    exit_status: ExitStatus = ExitStatus.USAGE
    label: str = ""

    def __init__(self, message: str, next_step: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step


class InputError(ParityError):
    """Bad input: a malformed file, an unknown name, a value out of range.

    Cause: what the user gave. Way out: give it as the message says. Exit status 2.
    """


class NotRunError(ParityError):
    """Nothing was compared: no device, no compiler, a capability is missing, zero keys.

    Cause: this machine or this engine cannot do it. Way out: the named alternative. Exit status 3.
    """

    exit_status = ExitStatus.NOT_RUN
    label = "not run: "


class NonFiniteError(ParityError):
    """A NaN or an infinity turned up where the contract allows none (1.10).

    Cause: the model's weights or the arithmetic of the side named. Way out: look at that key.
    """


class ParityBug(Exception):
    """A fault of parity itself or of a plug-in: the user can do nothing about it.

    Cause: a broken promise between two parts of the program. Way out: report it, with the line
    that reproduces it. Exit status 2.
    """
