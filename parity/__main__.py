"""``parity``: the entry point. Errors become one line, a next step and an exit status."""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import suppress
from typing import NoReturn, TextIO

from parity.errors import ParityBug, ParityError
from parity.status import ExitStatus


def main() -> None:
    """Run the command line and exit with its status."""
    warnings.showwarning = _show_warning
    stdout, status = sys.stdout, 0
    try:
        from parity.cli.commands import cli

        status = int(cli.main(standalone_mode=False) or 0)
        if stdout is not None:
            stdout.flush()
    except ParityError as error:
        fail(f"{error.label}{error.message}", error.next_step, error.exit_status)
    except ParityBug as error:
        fail(f"internal error: {error}", "report it with the command you typed", ExitStatus.USAGE)
    except KeyboardInterrupt:
        fail("interrupted", "", ExitStatus.USAGE)
    except (OSError, SystemExit) as error:
        _require_reader_gone(error, stdout)
    except Exception as error:
        _unexpected(error)
    sys.exit(status)


def fail(message: str, next_step: str, status: ExitStatus) -> NoReturn:
    """Print one line (and the next step) on stderr and exit."""
    from parity.presenting import printable

    _say(f"parity: {printable(message)}")
    for number, step in enumerate(next_step.splitlines()):
        _say(f"  {'     ' if number else 'next:'} {printable(step)}")
    sys.exit(int(status))


def _say(line: str) -> None:
    # Without stderr, print would take stdout, where only results belong.
    if sys.stderr is not None:
        with suppress(OSError):
            print(line, file=sys.stderr)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """A warning as one line, without the place in our sources."""
    from parity.presenting import printable

    _say(f"parity: note: {printable(str(message))}")


def _require_reader_gone(error: BaseException, stdout: TextIO | None) -> None:
    """Return only when whoever reads stdout has seen enough (``| head -1``): no change of status.

    Click ends the process with 1 for any broken pipe, and an engine may end it with 0: neither is
    a verdict, so everything else fails here.
    """
    left = _unwritten(stdout)
    if isinstance(left, BrokenPipeError):
        return
    if left is not None:
        next_step = "make room there, or write to a file"
        fail(f"stdout: cannot be written: {left.strerror}", next_step, ExitStatus.USAGE)
    _internal(error.__context__ if isinstance(error.__context__, OSError) else error)


def _unwritten(stdout: TextIO | None) -> OSError | None:
    """What keeps text that was left in stdout from being written, if any; the text is given up."""
    if stdout is None:
        return None
    try:
        stdout.flush()
    except OSError as error:
        # Python flushes again at exit, and would change the status.
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stdout.fileno())
        os.close(nothing)
        return error
    return None


def _unexpected(error: Exception) -> NoReturn:
    """Click's own usage errors, and whatever nobody foresaw."""
    import click

    if isinstance(error, click.ClickException):
        where = getattr(error, "ctx", None)
        command = where.command_path if where else "parity"
        fail(error.format_message().rstrip("."), f"{command} --help", ExitStatus.USAGE)
    if isinstance(error, click.Abort) and isinstance(error.__cause__, KeyboardInterrupt):
        fail("interrupted", "", ExitStatus.USAGE)
    _internal(error.__cause__ or error if isinstance(error, click.Abort) else error)


def _internal(error: BaseException) -> NoReturn:
    if os.environ.get("PARITY_TRACEBACK"):
        raise error
    said = (str(error).splitlines() or [""])[0]
    fail(
        f"internal error: {type(error).__name__}: {said}",
        "set PARITY_TRACEBACK=1, run again and report what it prints",
        ExitStatus.USAGE,
    )


if __name__ == "__main__":
    main()
