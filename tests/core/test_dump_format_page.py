"""docs/dump-format.md tells the truth: its example, vectors, chain and C writer."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import numpy as np

from parity.digests.chain import chain_lines
from parity.dump import HEADER_NAMES
from parity.dumps.reader import parse_dump, read_dump
from parity.fnv import BASES, fnv1a64, fnv1a64_array, hex16
from tests.c_header import build

PAGE = (Path(__file__).parents[2] / "docs" / "dump-format.md").read_text(encoding="utf-8")
X = np.arange(16, dtype=np.float32)
VECTORS = {
    "nothing": b"",
    "ASCII `a`": b"a",
    "ASCII `foobar`": b"foobar",
    "16 x `ff`": b"\xff" * 16,
    "0.0": np.float32(0.0).tobytes(),
    "-0.0": np.float32(-0.0).tobytes(),
    "1.0": np.float32(1.0).tobytes(),
    "x = 0, 1, ..., 15": X.tobytes(),
    "x, every second element": X[::2].tobytes(),
    "x, reversed": X[::-1].tobytes(),
    "x as 4 by 4, transposed": X.reshape(4, 4).T.tobytes(),
}


def block(language: str) -> str:
    found = re.search(rf"```{language}\b[^\n]*\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_example_is_a_dump() -> None:
    dump = parse_dump(block("text").encode(), "the example")
    assert {name: len(entries) for name, entries in dump.segments.items()} == {"": 4, "B.redo": 1}
    assert dump.segments["B.redo"][0].nonfinite == (2, 7)
    assert dump.header["greedy"] == "32:611"


def test_every_vector_stands_on_the_page() -> None:
    rows = dict(re.findall(r"^\| (.+?) \| `([0-9a-f]{16})` \|$", PAGE, re.MULTILINE))
    assert {name: hex16(fnv1a64(data)) for name, data in VECTORS.items()}.items() <= rows.items()
    assert hex16(fnv1a64_array(X[:8])) in PAGE


def test_both_bases_stand_on_the_page() -> None:
    for name, basis in BASES.items():
        assert f"| `{name}` | `{hex16(basis)}` ({basis}) |" in PAGE


def test_the_chain_on_the_page() -> None:
    rows = re.findall(r"^\| `(t32_\S+ \S+ \S+)` \| `([0-9a-f]{16})` \|$", PAGE, re.MULTILINE)
    assert len(rows) == 2
    assert chain_lines(line for line, _ in rows) == [int(digest, 16) for _, digest in rows]


def test_every_known_header_name_stands_on_the_page() -> None:
    table = PAGE[PAGE.index("## Header") : PAGE.index("## The hash")]
    assert [name for name in HEADER_NAMES if f"`{name}`" not in table] == []


def test_the_c_writer_writes_a_dump(tmp_path: Path) -> None:
    source, dump = tmp_path / "w.c", tmp_path / "w.dump"
    source.write_text(block("c"))
    program = build(source, tmp_path / "w")
    subprocess.run([program], env={**os.environ, "PARITY_DUMP": str(dump)}, check=True)
    (entry,) = read_dump(dump).entries
    assert (entry.key.tag, str(entry.type)) == ("t33_l7_attn", "f32[4,4]")
    assert entry.digest == fnv1a64_array(X)
