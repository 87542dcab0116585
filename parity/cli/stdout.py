"""Writing to stdout when whoever reads it may be gone, or was never there."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from parity.errors import InputError


@contextmanager
def guarded_stdout() -> Iterator[None]:
    """Around whatever writes to stdout, which must be open.

    A reader that has seen enough (``| head -1``) is no fault; any other one raises InputError.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        abandon(sys.stdout)
    except OSError as error:
        abandon(sys.stdout)
        raise InputError(
            f"stdout: cannot be written: {error.strerror}", "make room there, or write to a file"
        ) from error


def abandon(stream: TextIO) -> None:
    """Point a broken stream at nothing: Python flushes it at exit, and would change the status."""
    with suppress(OSError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)
