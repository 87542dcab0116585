"""JSON gives every report back; CSV has one row a key with everything of it."""

import io
from collections.abc import Callable
from dataclasses import replace

import pandas as pd
import pytest

from parity.errors import InputError
from parity.presenting import Options, Presenter
from parity.tree import KeyRow, KeyState, Tree
from parity_reports.console import ConsoleReport
from parity_reports.csv_report import COLUMNS, CsvReport
from parity_reports.json_report import JsonReport
from parity_reports.values import Value, parse_key, parse_value
from tests.reports import trees

each_tree = pytest.mark.parametrize("build", trees.ALL.values(), ids=list(trees.ALL))


def text_of(presenter: Presenter, tree: Tree) -> str:
    stream = io.StringIO()
    presenter.write(tree, stream, Options())
    return stream.getvalue()


def read_csv(text: str) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)


@each_tree
def test_a_report_made_again_from_json_is_the_first_one(build: Callable[[], Tree]) -> None:
    stored = text_of(JsonReport(), build())
    again = Tree.from_json(stored)
    assert again == build()
    assert text_of(JsonReport(), again) == stored
    for presenter in (ConsoleReport(), CsvReport()):
        assert text_of(presenter, again) == text_of(presenter, build())


def test_red_a_changed_json_gives_another_report_or_none() -> None:
    stored = text_of(JsonReport(), trees.red())
    changed = Tree.from_json(stored.replace("3e0e01e2", "3e0e01e3"))
    assert text_of(ConsoleReport(), changed) != text_of(ConsoleReport(), trees.red())
    with pytest.raises(InputError, match="not JSON"):
        Tree.from_json(stored[:-10])


def test_json_is_ascii_whatever_the_data() -> None:
    assert text_of(JsonReport(), replace(trees.red(), notes=["é\udc80\u2028"])).isascii()


@each_tree
def test_csv_has_one_row_a_key(build: Callable[[], Tree]) -> None:
    rows = read_csv(text_of(CsvReport(), build()))
    assert list(rows.columns) == list(COLUMNS)
    assert list(rows["key"]) == [row.key for row in build().keys]
    assert list(rows["state"]) == [row.state for row in build().keys]


def test_csv_content() -> None:
    rows = read_csv(text_of(CsvReport(), trees.red())).set_index("key", drop=False)
    first = rows.loc[trees.FIRST]
    ref, dut = "5c55827df1d1b1a4", "6508ff172cc663ac"
    place = ["", trees.FIRST, "33", "7", "attn", "differs", "", "", ref, dut]
    assert list(first) == [*place, "f32", "f32", "[4,32]", "[4,32]", "", ""]
    logits = rows.loc["t33_logits"]
    assert list(logits[["pos", "layer", "field"]]) == ["33", "", "logits"]


def test_csv_keeps_segments_sides_and_counts_of_what_is_not_finite() -> None:
    rows = read_csv(text_of(CsvReport(), trees.stopped())).set_index("key")
    assert set(rows["segment"]) == {"m=4"}
    normed = rows.loc["t33_final_normed"]
    assert list(normed[["ref_nonfinite", "dut_nonfinite"]]) == ["", "3@17"]
    one_side = read_csv(text_of(CsvReport(), trees.tensor_files())).set_index("key")
    ffn = one_side.loc["blk.0/ffn"]
    assert list(ffn[["pos", "state", "dut_hash", "dut_shape"]]) == ["", "missing", "", ""]
    assert one_side.loc["blk.0/attn", "dut_dtype"] == "f16"


def test_csv_keeps_hashes_that_look_like_numbers_and_names_with_commas() -> None:
    rows = [
        KeyRow("a,b", KeyState.SAME, "0000000000000012 f32[]", "0000000000000012 f32[]"),
        KeyRow('say "x"', KeyState.SAME, "123456789012e456", "123456789012e456"),
    ]
    read = read_csv(text_of(CsvReport(), replace(trees.two_column(), keys=rows)))
    assert list(read["ref_hash"]) == ["0000000000000012", "123456789012e456"]
    assert list(read["key"]) == ["a,b", 'say "x"']
    assert list(read["ref_shape"]) == ["[]", ""]


def test_csv_of_no_keys_is_the_heading() -> None:
    assert text_of(CsvReport(), trees.not_run()) == ",".join(COLUMNS) + "\n"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (None, Value()),
        ("00ff", Value("00ff")),
        ("00ff int8[2,32]", Value("00ff", "int8", "[2,32]")),
        ("00ff nonfinite=1@0", Value("00ff", nonfinite="1@0")),
        ("00ff f32[4] nonfinite=3@17", Value("00ff", "f32", "[4]", "3@17")),
    ],
)
def test_value_text(text: str | None, value: Value) -> None:
    assert parse_value(text) == value


def test_key_text() -> None:
    key = parse_key("t33_l7_attn")
    assert key is not None
    assert (key.pos, key.layer, key.field) == (33, 7, "attn")
    assert parse_key("model.embed") is None
