"""The goldens of every format: what they are made of, and `python -m tests.reports.regold`.

That rewrites them and prints what changed; nothing else writes into the golden folder. Of a page
its parts are kept, in their order: each tag with its id and the text in it, no style and no script.
"""

from __future__ import annotations

import difflib
import io
from collections.abc import Callable
from pathlib import Path

from parity.presenting import Options, Presenter
from parity.runs.checks import CheckPresenter, CheckRun
from parity_reports import html_checks, html_report
from parity_reports.console import ConsoleReport
from parity_reports.console_checks import ConsoleChecks
from parity_reports.csv_report import CsvReport
from parity_reports.github_report import GithubChecks, GithubReport
from parity_reports.json_report import JsonReport
from parity_reports.junit_checks import JunitChecks
from parity_reports.junit_report import JunitReport
from parity_reports.markdown_checks import MarkdownChecks
from parity_reports.markdown_report import MarkdownReport
from parity_reports.screen import Screen
from tests.reports import check_runs, html_page, trees

FOLDER = Path(__file__).parent / "golden"
WIDTHS = {"": 80, "_60": 60, "_200": 200}
# One tree a verdict, and those that hold what no other one does.
SHOWN = (
    *("green", "explained", "decode_explained", "isolated", "not_run", "shaky", "tensor_files"),
    *("agreed", "beyond"),
)
PAGES = ("green", "explained", "not_run", "agreed", "beyond")
PRESENTERS: dict[str, Callable[[], Presenter]] = {
    "csv": CsvReport,
    "json": JsonReport,
    "xml": JunitReport,
    "md": MarkdownReport,
    "github": GithubReport,
}
CHECK_PRESENTERS: dict[str, Callable[[], CheckPresenter]] = {
    "txt": ConsoleChecks,
    "xml": JunitChecks,
    "md": MarkdownChecks,
    "github": GithubChecks,
}


def goldens() -> dict[str, str]:
    """File name to what each report gives today."""
    made = _console()
    for name in SHOWN:
        for suffix, presenter in PRESENTERS.items():
            stream = io.StringIO()
            presenter().write(trees.ALL[name](), stream, Options())
            made[f"{name}.{suffix}"] = stream.getvalue()
    made |= {f"{name}.page": parts(html_report.render(trees.ALL[name]())) for name in PAGES}
    for name, run in check_runs.RUNS.items():
        made |= _checks(f"checks_{name.replace(' ', '_')}", run)
    return made


def _console() -> dict[str, str]:
    render = ConsoleReport().render
    made = {f"{name}.txt": render(build()) for name, build in trees.ALL.items()}
    made |= {f"{name}_q.txt": render(build(), quiet=True) for name, build in trees.ALL.items()}
    for suffix, width in WIDTHS.items():
        text = render(trees.red(), Screen(width), json_path="run.json")
        made[f"red_json{suffix}.txt"] = text
    return made


def _checks(name: str, run: CheckRun) -> dict[str, str]:
    made = {}
    for suffix, presenter in CHECK_PRESENTERS.items():
        stream = io.StringIO()
        presenter().write(run, stream, Options())
        made[f"{name}.{suffix}"] = stream.getvalue()
    return {**made, f"{name}.page": parts(html_checks.render(run))}


def parts(page: str) -> str:
    """``td#id: text``, a line for each element with an id or a text of its own."""
    lines = []
    for element in html_page.read(page).elements:
        text = " ".join(element.text.split())
        name = element.attributes.get("id", "")
        if element.tag not in ("style", "script") and (text or name):
            said = f"{element.tag}#{name}" if name else element.tag
            lines.append(f"{said}: {text}".rstrip(": "))
    return "\n".join(lines) + "\n"


def changes(made: dict[str, str], folder: Path) -> list[str]:
    """Unified difference lines between the stored goldens and ``made``; also stray files."""
    found: list[str] = []
    for name, text in made.items():
        path = folder / name
        stored = path.read_bytes() if path.exists() else b""
        if stored == text.encode():
            continue
        sides = (stored.decode(errors="replace").splitlines(), text.splitlines())
        lines = list(difflib.unified_diff(*sides, f"stored {name}", f"made {name}", lineterm=""))
        found += lines or [f"line ends differ: {name}"]
    return found + [
        f"stray golden: {p.name}" for p in sorted(folder.iterdir()) if p.name not in made
    ]


def main() -> None:
    """Rewrite the goldens, remove those of no report, and print what changed."""
    made = goldens()
    print("\n".join(changes(made, FOLDER)) or "nothing changed")
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8", newline="\n")
    for path in FOLDER.iterdir():
        if path.name not in made:
            path.unlink()


if __name__ == "__main__":
    main()
