"""``parity``: the entry point. Errors become one line, a next step and an exit status."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from contextlib import suppress
from typing import NoReturn

from parity.errors import ParityBug, ParityError
from parity.status import ExitStatus

COMPLETION = "_PARITY_COMPLETE"  # set by the shell that asks for completions
HELP = {"-h", "--help", "--version"}  # these end before any command runs


def main() -> None:
    """Run the command line and exit with its status."""
    warnings.showwarning = _show_warning
    _end_cleanly()
    if COMPLETION in os.environ:
        _complete()
    status = 0
    try:
        status = _run_command()
    except ParityError as error:
        fail(f"{error.label}{error.message}", error.next_step, error.exit_status)
    except ParityBug as error:
        fail(f"internal error: {error}", "report it with the command you typed", ExitStatus.USAGE)
    except KeyboardInterrupt:
        fail("interrupted", "", ExitStatus.USAGE)
    except OSError as error:
        _require_help_unread(error)
    except (Exception, SystemExit) as error:
        _unexpected(error)
    _flush()
    sys.exit(status)


def _end_cleanly() -> None:
    """End on a signal as on Ctrl-C: an engine that is a program has a session of its own, and would
    outlive us. A signal that is ignored (nohup) stays ignored."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            with suppress(ValueError):  # not in the main thread: who called us ends us
                signal.signal(number, signal.default_int_handler)


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


def _complete() -> None:
    """Answer a shell that asks for completions; ends the process."""
    from parity.cli.commands import cli

    cli.main(prog_name="parity")


def _run_command() -> int:
    """The status that the command returns; 0 for ``--help`` and ``--version``."""
    import click

    from parity.cli.commands import cli

    # Not through cli.main: there a broken pipe, whoever meets it, ends the process with 1.
    try:
        with cli.make_context("parity", sys.argv[1:]) as context:
            return int(cli.invoke(context) or 0)
    except click.exceptions.Exit as done:
        return done.exit_code


def _require_help_unread(error: OSError) -> None:
    """Return only when ``--help`` or ``--version`` met a reader that had seen enough."""
    if HELP.isdisjoint(sys.argv):
        _internal(error)
    if not isinstance(error, BrokenPipeError):
        _flush()
        fail(f"stdout: cannot be written: {error.strerror}", "make room there", ExitStatus.USAGE)


def _flush() -> None:
    """Write out what is left; a fault that Python's exit meets would change the status."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError):
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, sys.stdout.fileno())


def _unexpected(error: BaseException) -> NoReturn:
    """Click's own usage errors, and whatever nobody foresaw."""
    import click

    if isinstance(error, click.ClickException):
        where = getattr(error, "ctx", None)
        command = where.command_path if where else _typed_command()
        fail(error.format_message().rstrip("."), f"{command} --help", ExitStatus.USAGE)
    if isinstance(error, click.Abort):
        fail("interrupted", "", ExitStatus.USAGE)
    _internal(error)


def _typed_command() -> str:
    """``parity diff`` where that was typed, else ``parity``."""
    from parity.cli.commands import cli

    return " ".join(["parity", *(word for word in sys.argv[1:2] if word in cli.commands)])


def _internal(error: BaseException) -> NoReturn:
    """Whatever nobody foresaw; SystemExit, which only an engine raises, is no verdict either."""
    if os.environ.get("PARITY_TRACEBACK"):
        import traceback

        traceback.print_exception(error)
    said = (str(error).splitlines() or [""])[0]
    fail(
        f"internal error: {type(error).__name__}: {said}{_raised_at(error)}",
        "set PARITY_TRACEBACK=1, run again and report what it prints",
        ExitStatus.USAGE,
    )


def _raised_at(error: BaseException) -> str:
    """File and line that raised it, as ``, in mine.py line 7``: it may be an engine's own."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    return f", in {os.path.basename(trace.tb_frame.f_code.co_filename)} line {trace.tb_lineno}"


if __name__ == "__main__":
    main()
