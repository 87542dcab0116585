"""The CSV report: one row a key, for spreadsheets and scripts.

Read it with every column as text (``dtype=str`` in pandas): a hash of digits only, or with one
``e`` in it, would otherwise be taken for a number. The rows are those that the tree lists: of a
very large run only the keys that are not the same, and the first one's step. ``cause`` and
``source`` (the birthplace) are empty where nobody asked for causes.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, TextIO

from parity.presenting import Options, write_text
from parity.tree import ElementRow, KeyRow, Tree
from parity_reports.values import parse_key, parse_value

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    *("segment", "key", "pos", "layer", "field", "state", "cause", "source"),
    *("ref_hash", "dut_hash"),
    *("ref_dtype", "dut_dtype", "ref_shape", "dut_shape", "ref_nonfinite", "dut_nonfinite"),
)
ELEMENT_COLUMNS = ("key", *(part.name for part in fields(ElementRow)))


class CsvReport:
    """Presenter ``csv``."""

    name = "csv"

    def write(self, tree: Tree, stream: TextIO, options: Options) -> None:
        """Write a heading and one row a key, in dataflow order; no option changes it."""
        write_text(stream, frame(tree).to_csv(index=False, lineterminator="\n"))

    @staticmethod
    def key_frame(tree: Tree) -> pd.DataFrame:
        """One row a key: ``pos`` and ``layer`` are Int64, <NA> where a key has none."""
        import pandas as pd

        made = frame(tree)
        numbers = {
            name: pd.to_numeric(made[name], errors="coerce").astype("Int64")
            for name in ("pos", "layer")
        }
        return made.assign(**numbers)

    @staticmethod
    def element_frame(tree: Tree) -> pd.DataFrame:
        """One row for each element that the tree lists; ``ulp`` holds Python integers or None."""
        import pandas as pd

        found = tree.elements
        rows = [] if found is None else [(found.key, *vars(row).values()) for row in found.rows]
        return pd.DataFrame(rows, columns=list(ELEMENT_COLUMNS), dtype=object)


def frame(tree: Tree) -> pd.DataFrame:
    """One row a key, all columns text; empty where there is no such part or it was not recorded."""
    import pandas as pd

    return pd.DataFrame([_row(row) for row in tree.keys], columns=list(COLUMNS), dtype=str)


def _row(row: KeyRow) -> tuple[str, ...]:
    key = parse_key(row.key)
    address = ("", "", "") if key is None else (str(key.pos), _layer(key.layer), key.field)
    ref, dut = parse_value(row.ref), parse_value(row.dut)
    return (
        *(row.segment, row.key, *address, row.state, row.cause, row.source),
        *(ref.digest, dut.digest),
        *(ref.dtype, dut.dtype, ref.shape, dut.shape, ref.nonfinite, dut.nonfinite),
    )


def _layer(layer: int | None) -> str:
    return "" if layer is None else str(layer)
