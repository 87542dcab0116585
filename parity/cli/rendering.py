"""``parity report``: a saved result of any command, rendered again in the formats its kind has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parity.cli.reporting import (
    CHECK_REPORTS,
    FORMATS,
    GITHUB,
    Reports,
    annotate,
    require_writable_reports,
    write_check_report,
)
from parity.comparison.compare import exit_status
from parity.errors import InputError
from parity.presenting import STDOUT, Options, write_report
from parity.reading import read_json, text_of
from parity.registry import FUNCTION_REPORTS, ORDER_REPORTS, REPORTS, find, plugins
from parity.runs.checks import CheckRun
from parity.tree import FORMAT, Tree

CONSOLE = "console"
_NEXT = "give a file of --json"


@dataclass(frozen=True)
class Saved:
    """A saved result. ``kind``: the format of its file; ``formats``: those that it can be rendered
    in; ``write``: one of them, to a path; ``result``: what an annotation is made of, of
    ``group``."""

    kind: str
    formats: Sequence[str]
    write: Callable[[str, str, Options], None]
    status: int
    group: str = ""
    result: Tree | CheckRun | None = None


def run_report(
    run: Path, *, format_name: str | None, output: str, quiet: bool, **options: Any
) -> int:
    """Run ``parity report``; the exit status is that of the saved result.

    ``options``: a path a format, and ``github``. The console comes last, unless a report takes
    stdout or one was asked for with ``format_name`` or ``output``.
    """
    asked = [(name, options[f"{name}_path"]) for name in FORMATS]
    wanted = [(name, path) for name, path in asked if path is not None]
    single = format_name is not None or output != STDOUT
    if single:
        wanted.append((format_name or CONSOLE, output))
        _require_installed(format_name or CONSOLE)
    paths = [path for _, path in wanted]
    saved = open_saved(run)
    github = bool(options[GITHUB])
    _require_formats(run, saved, [*(name for name, _ in wanted), *([GITHUB] if github else [])])
    require_writable_reports(*paths, inputs=(run,))
    chosen = Options(quiet=quiet, json_path=str(run))
    for name, path in wanted:
        saved.write(name, path, chosen)
    if not single and STDOUT not in paths:
        saved.write(CONSOLE, STDOUT, chosen)
    if github and saved.result is not None:
        reports = Reports()
        reports.github = True
        annotate(reports, saved.group, saved.result)
    return saved.status


def open_saved(run: Path) -> Saved:
    """What the file holds; InputError for one that cannot be read, or is none of ours."""
    text = _text(run)
    body = read_json(text, str(run))
    kind = _kind(body)
    if kind == FORMAT:
        return _tree(Tree.from_plain(body, str(run)))
    found = _functions(text, run) or _orders(text, run) or _checks(run, kind)
    if found is None:
        told = f"a {kind} file, which has no report" if kind else "no file of --json"
        raise InputError(f"{run}: {told}", _NEXT)
    return found


def _text(run: Path) -> str:
    return text_of(run, _NEXT, _NEXT)


def _kind(body: Any) -> str:
    """The format that a file names; a file of several probes is a list. Empty where none is."""
    first = body[0] if isinstance(body, list) and body else body
    named = first.get("format") if isinstance(first, dict) else None
    return named if isinstance(named, str) and named.startswith("parity-") else ""


def _require_installed(name: str) -> None:
    """InputError with the nearest name where no kind of file has that format."""
    if not any(
        name in plugins(group) for group in (CHECK_REPORTS, FUNCTION_REPORTS, ORDER_REPORTS)
    ):
        find(REPORTS, name)


def _require_formats(run: Path, saved: Saved, names: Sequence[str]) -> None:
    for name in names:
        if name not in saved.formats:
            raise InputError(
                f"{run}: a {saved.kind} file has no {name} report",
                f"it has: {', '.join(saved.formats)}",
            )


def _tree(tree: Tree) -> Saved:
    def write(name: str, path: str, options: Options) -> None:
        write_report(find(REPORTS, name).load()(), tree, path, options)

    return Saved(FORMAT, list(plugins(REPORTS)), write, int(exit_status(tree)), REPORTS, tree)


def _functions(text: str, run: Path) -> Saved | None:
    from parity.cli.mathfn import write_result
    from parity.elementary.mathfn import FORMAT as KIND
    from parity.elementary.mathfn import read_result

    found = read_result(text, str(run))
    if found is None:
        return None

    def write(name: str, path: str, options: Options) -> None:
        write_result(found, name, path, options)

    formats = sorted({"json", *plugins(FUNCTION_REPORTS)})
    return Saved(KIND, formats, write, int(found.verdict.exit_status))


def _orders(text: str, run: Path) -> Saved | None:
    from parity.cli.ordering import write_result
    from parity.order.record import FORMAT as KIND
    from parity.order.record import read_table

    found = read_table(text, str(run))
    if found is None:
        return None

    def write(name: str, path: str, options: Options) -> None:
        write_result(found, name, path, options)

    formats = sorted({"json", *plugins(ORDER_REPORTS)})
    return Saved(KIND, formats, write, int(found.exit_status))


def _checks(run: Path, kind: str) -> Saved | None:
    from parity.cli.saved_checks import saved_checks

    found = saved_checks(run)
    if found is None:
        return None

    def write(name: str, path: str, options: Options) -> None:
        write_check_report(found, name, path, options)

    formats = list(plugins(CHECK_REPORTS))
    return Saved(kind, formats, write, int(found.verdict.exit_status), CHECK_REPORTS, found)
