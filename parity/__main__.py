"""``parity``: the entry point. Errors become one line, a next step and an exit status."""

from __future__ import annotations

import os
import sys

from parity.errors import ParityBug, ParityError
from parity.status import ExitStatus


def main() -> None:
    """Run the command line and exit with its status."""
    from parity.cli.commands import cli

    try:
        status = cli.main(standalone_mode=False)
    except ParityError as error:
        fail(f"{error.label}{error.message}", error.next_step, error.exit_status)
    except ParityBug as error:
        fail(f"internal error: {error}", "report it with the command you typed", ExitStatus.USAGE)
    except KeyboardInterrupt:
        fail("interrupted", "", ExitStatus.USAGE)
    except Exception as error:
        _unexpected(error)
    sys.exit(int(status or 0))


def fail(message: str, next_step: str, status: ExitStatus) -> None:
    """Print one line (and the next step) on stderr and exit."""
    print(f"parity: {message}", file=sys.stderr)
    if next_step:
        print(f"  next: {next_step}", file=sys.stderr)
    sys.exit(int(status))


def _unexpected(error: Exception) -> None:
    """Click's own usage errors, and whatever nobody foresaw."""
    import click

    if isinstance(error, click.exceptions.Exit):
        sys.exit(error.exit_code)
    if isinstance(error, click.ClickException):
        where = getattr(error, "ctx", None)
        command = where.command_path if where else "parity"
        fail(error.format_message().rstrip("."), f"{command} --help", ExitStatus.USAGE)
    if isinstance(error, click.Abort):
        fail("interrupted", "", ExitStatus.USAGE)
    if os.environ.get("PARITY_TRACEBACK"):
        raise error
    fail(
        f"internal error: {type(error).__name__}: {error}",
        "set PARITY_TRACEBACK=1, run again and report what it prints",
        ExitStatus.USAGE,
    )


if __name__ == "__main__":
    main()
