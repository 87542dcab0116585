"""The tables of a page as a reader sees them: rows of cells, each with its text and classes."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

MARKS = {"ok": "ok", "no": "no"}  # classes of the icons: a tick and a cross


@dataclass
class Cell:
    """One cell: ``text`` with blanks as one; ``icon``: "ok", "no", "dash" or "" for none."""

    classes: frozenset[str]
    text: str = ""
    icon: str = ""
    rects: list[dict[str, str]] = field(default_factory=list)


@dataclass
class Row:
    """One row; ``hot``: the one that matters."""

    classes: frozenset[str]
    cells: list[Cell] = field(default_factory=list)

    @property
    def hot(self) -> bool:
        """Whether it is set off."""
        return "hot" in self.classes

    @property
    def texts(self) -> list[str]:
        """What stands in its cells."""
        return [cell.text for cell in self.cells]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tables: dict[str, list[Row]] = {}
        self._rows: list[Row] | None = None
        self._cell: Cell | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        classes = frozenset(given.get("class", "").split())
        if tag == "table":
            self._rows = self.tables.setdefault(given.get("id", ""), [])
        elif tag == "tr" and self._rows is not None:
            self._rows.append(Row(classes))
        elif tag in ("td", "th") and self._rows:
            self._cell = Cell(classes)
            self._rows[-1].cells.append(self._cell)
        elif self._cell is not None:
            self._inside(tag, given, classes)

    def _inside(self, tag: str, given: dict[str, str], classes: frozenset[str]) -> None:
        assert self._cell is not None
        if tag == "svg" and "ic" in classes:
            self._cell.icon = next(iter(classes & MARKS.keys()), "dash")
        if tag == "rect":
            self._cell.rects.append(given)
        self._cell.text += " "

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self._rows = None
        elif tag in ("td", "th"):
            self._cell = None

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.text += data


def tables(html: str) -> dict[str, list[Row]]:
    """Rows of each table by its id, the head among them."""
    reader = _Reader()
    reader.feed(html)
    for rows in reader.tables.values():
        for row in rows:
            for cell in row.cells:
                cell.text = " ".join(cell.text.split())
    return reader.tables
