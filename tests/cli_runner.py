"""Run the command line inside the test process, as a shell would see it."""

from __future__ import annotations

import contextlib
import io
import sys
from dataclasses import dataclass
from unittest import mock

from parity.__main__ import main


@dataclass(frozen=True)
class Result:
    """Exit status and what was printed."""

    status: int
    stdout: str
    stderr: str


def run_cli(*words: str) -> Result:
    """``parity WORDS`` with captured streams."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["parity", *words]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as done:
            status = int(done.code or 0)
    return Result(status, out.getvalue(), err.getvalue())
