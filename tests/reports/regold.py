"""The console goldens: what they are made of, and `python -m tests.reports.regold` to rewrite them.

Rewriting prints what changed; nothing else writes into the golden folder.
"""

from __future__ import annotations

import difflib
from pathlib import Path

from parity_reports.console import ConsoleReport
from tests.reports import trees

FOLDER = Path(__file__).parent / "golden"
WIDTHS = {"": 80, "_60": 60, "_200": 200}


def goldens() -> dict[str, str]:
    """File name to what the console report gives today."""
    render = ConsoleReport().render
    made = {f"{name}.txt": render(build()) for name, build in trees.ALL.items()}
    made |= {f"{name}_q.txt": render(build(), quiet=True) for name, build in trees.ALL.items()}
    for suffix, width in WIDTHS.items():
        text = render(trees.red(), width=width, json_path="run.json")
        made[f"red_json{suffix}.txt"] = text
    return made


def changes(made: dict[str, str], folder: Path) -> list[str]:
    """Unified difference lines between the stored goldens and ``made``; also stray files."""
    found: list[str] = []
    for name, text in made.items():
        path = folder / name
        stored = path.read_text(encoding="utf-8") if path.exists() else ""
        sides = (stored.splitlines(), text.splitlines())
        found += difflib.unified_diff(*sides, f"stored {name}", f"made {name}", lineterm="")
        if stored != text and not found:
            found.append(f"line ends differ: {name}")
    found += [f"stray golden: {p.name}" for p in sorted(folder.glob("*.txt")) if p.name not in made]
    return found


def main() -> None:
    """Rewrite the goldens and print what changed."""
    made = goldens()
    print("\n".join(changes(made, FOLDER)) or "nothing changed")
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
