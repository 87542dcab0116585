"""Check the links between Markdown pages: the file exists and has the heading."""

import re
from collections import Counter
from pathlib import Path

LINK = re.compile(r"\[[^\]]*\]\(<?([^)\s>]+)>?[^)]*\)|^\[[^\]]+\]:\s+(\S+)", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
INLINE_CODE = re.compile(r"`[^`\n]+`")
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)
ENTRY = re.compile(r"^::: (\S+)$", re.MULTILINE)  # a name of the API, filled in by the site
ELSEWHERE = re.compile(r"^[a-z][a-z0-9+.-]*:")


def targets(text: str) -> list[str]:
    """Return the targets of a page's links, those in code left out."""
    prose = INLINE_CODE.sub("", FENCED.sub("", text))
    return [inline or reference for inline, reference in LINK.findall(prose)]


def anchors(text: str) -> set[str]:
    """Return the names that a page's headings can be linked by, as GitHub makes them."""
    seen: Counter[str] = Counter()
    names = set()
    for heading in HEADING.findall(FENCED.sub("", text)):
        visible = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", visible.lower()).replace(" ", "-")
        names.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return names


def broken(page: Path) -> list[str]:
    """Return one line for each link of a page that leads nowhere; web addresses are not opened."""
    return [
        f"{page.name}: {target}: {problem}"
        for target in targets(page.read_text(encoding="utf-8"))
        if not ELSEWHERE.match(target) and (problem := _problem(page, target))
    ]


def _problem(page: Path, target: str) -> str:
    name, _, anchor = target.partition("#")
    file = (page.parent / name) if name else page
    if not file.exists():
        return "no such file"
    if not anchor or file.suffix != ".md":
        return ""
    text = file.read_text(encoding="utf-8")
    # Which members an entry has, only the site knows: its strict build checks these links again.
    is_entry = any(f"{anchor}.".startswith(f"{name}.") for name in ENTRY.findall(text))
    return "" if is_entry or anchor in anchors(text) else "no such heading"
