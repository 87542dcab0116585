"""Digest files: small, read back as they were, and refused by the field when damaged."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.digests.file import _check, from_text, is_digest_file, read_digest, to_text
from parity.digests.search import compare_trees
from parity.digests.tree import grow
from parity.dump import Entry, TensorType
from parity.dumps.writer import format_lines
from parity.errors import InputError
from parity.keys import FREE, Key
from parity.status import ExitStatus
from tests.core.digest_dumps import (
    EDITS,
    F32,
    Edit,
    dump_of,
    edited,
    small,
    through_file,
)
from tests.core.mutations import BUDGET, SEED, altered, mutated

# --- the file -------------------------------------------------------------------------------------


@given(st.integers(0, 4), EDITS, st.integers(0, 5), st.sampled_from([32, 64]))
@settings(derandomize=True, max_examples=80, deadline=None)
def test_a_file_gives_the_tree_back(positions: int, edits: list[Edit], cut: int, bits: int) -> None:
    header = {"engine": 'a"b\\c', "model": "ü 日本"}
    tree = grow(dump_of(edited(small(positions), edits), cut, **header), bits=bits)
    back = through_file(tree)
    assert (back.header, back.layout, [*back.links]) == (tree.header, tree.layout, [*tree.links])
    assert (back.whole, back.bits, back.stop) == (tree.whole, tree.bits, tree.stop)
    assert to_text(back) == to_text(tree)


def test_names_of_a_tensor_file(tmp_path: Path) -> None:
    names = ["layers.9.w", "a name with blanks", "é f32[3]", "t0_l0_x"]
    entries = [Entry(Key.of_name(name), at, F32) for at, name in enumerate(names)]
    tree = grow(dump_of(entries))
    path = tmp_path / "t.digest"
    path.write_text(to_text(tree), encoding="utf-8")
    back = read_digest(path)
    assert [place.key.tag for place in back.layout] == names
    assert back.layout[1].key.pos == FREE
    assert is_digest_file(path)


def test_small() -> None:
    """2,120 keys of 48 layers: a sixth of the dump."""
    fields = ("nrm", "kraw", "knorm", "k", "ks", "v", "vs", "qrope", "attn", "ores", "x")
    keys = [
        Key(pos, layer, name) for pos in range(32, 36) for layer in range(48) for name in fields
    ]
    keys += [Key(pos, None, name) for pos in range(32, 36) for name in ("final_normed", "logits")]
    rng = random.Random(2)
    entries = [Entry(key, rng.getrandbits(64), TensorType("f32", (4, 32))) for key in keys]
    dump = dump_of(entries)
    text, whole = to_text(grow(dump)), "\n".join(format_lines(dump, plain=False))
    assert len(entries) == 2120
    assert len(text) < 12_500
    assert len(text) * 6 < len(whole)


def damaged(change: Callable[[dict[str, Any]], object], *, check: bool = False) -> str:
    body = json.loads(to_text(grow(dump_of(small(2)))))
    change(body)
    if check:
        named = {name: value for name, value in body.items() if name in body["check"]}
        body["check"] = {name: _check(value) for name, value in named.items()}
    return json.dumps(body)


DAMAGE: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda body: body.pop("links"), "field links is missing"),
    (lambda body: body.pop("check"), "field check is missing"),
    (lambda body: body.update(more=1), "field more is unknown"),
    (lambda body: body.update(keys=31), "field keys does not have its check"),
    (lambda body: body["links"].reverse(), "field links does not have its check"),
    (lambda body: body["header"].update(engine="x"), "field header does not have its check"),
    (lambda body: body.update(check=[]), "field header does not have its check"),
    (lambda body: body["check"].pop("whole"), "field whole does not have its check"),
]


@pytest.mark.parametrize(("change", "text"), DAMAGE, ids=[text for _, text in DAMAGE])
def test_damage_is_refused_by_the_field(change: Callable[..., object], text: str) -> None:
    with pytest.raises(InputError, match=f"^f: damaged: {text}$") as caught:
        from_text(damaged(change), "f")
    assert caught.value.exit_status is ExitStatus.USAGE
    assert caught.value.next_step == "write it again: parity digest DUMP -o FILE"


# Files that another program wrote wrongly, with the right checks.
WRONG: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda body: body.update(bits=16), "field bits is 16, not 32 or 64"),
    (lambda body: body.update(keys="30"), "keys: a value of another kind"),
    (lambda body: body.update(keys=31), "field keys is 31, fields spans and steps have 30"),
    (lambda body: body.update(whole="xyz"), "field whole is not 16 hexadecimal digits"),
    (lambda body: body.update(whole="0" * 16), "field whole is not the last of links"),
    (lambda body: body.update(stop=30), "field stop is 30, of 30 keys"),
    (lambda body: body["links"].pop(), "field links has 1 texts, for 2 positions"),
    (lambda body: body["links"].__setitem__(0, "AAAA"), "field links: text 0 has 3 bytes for 15 "),
    (lambda body: body["links"].__setitem__(0, "A*=="), "Only base64 data is allowed"),
    (lambda body: body["spans"][0].__setitem__(3, 7), "field spans: positions 0 to 1, step 7"),
    (lambda body: body["spans"][0].__setitem__(1, -2), "field spans: positions -2 to 1, step 0"),
    (lambda body: body["spans"][0].__setitem__(2, 10**9), "field keys is 30, fields spans and "),
    (lambda body: body["spans"].append(["", 1, 1, 0]), "field keys is 30, fields spans and st"),
    (lambda body: body["spans"][0].pop(), r"field spans: not \[segment, first, last, step\]"),
    (lambda body: body["steps"][0][1].__setitem__(1, 10**9), "field keys is 30, fields spans"),
    (lambda body: body["steps"][0][1].__setitem__(2, -1), "field steps: layers 0 to 2, list -1"),
    (lambda body: body["steps"][0][1].pop(), r"field steps: not \[first layer, last layer, fie"),
    (lambda body: body["fields"][1].__setitem__(0, ["x", None]), "field steps: a key stands tw"),
    (lambda body: body["fields"][1][0].__setitem__(0, "l1_x"), "field fields: 'l1_x' is the na"),
    (lambda body: body["fields"][1][0].__setitem__(1, "f32"), r"type 'f32' is not dtype\[shape"),
    (lambda body: body["fields"][1].__setitem__(0, ["x"]), r"field fields: not \[name, type\]"),
]


@pytest.mark.parametrize(("change", "text"), WRONG, ids=[text[:40] for _, text in WRONG])
def test_fields_that_contradict_each_other_are_refused(
    change: Callable[..., object], text: str
) -> None:
    with pytest.raises(InputError, match=f"^f: damaged: {text}"):
        from_text(damaged(change, check=True), "f")


def test_segments_and_positions_must_rise() -> None:
    def twice(body: dict[str, Any]) -> None:
        body["spans"] = [["", 0, 0, 0], ["", 0, 0, 0]]

    def back(body: dict[str, Any]) -> None:
        body["spans"] = [["A", 0, 0, 0], ["B", 0, 0, 0], ["A", 1, 1, 0]]
        body["keys"] = 45

    for change, text in ((twice, "positions do not rise"), (back, "a segment begins twice")):
        with pytest.raises(InputError, match=text):
            from_text(damaged(change, check=True), "f")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "f: damaged: not JSON at line 1 column 2"),
        ('{"format":"parity-digest","version":1,', "f: damaged: not JSON at line 1 column 39"),
        ("[1]", "f: not a parity-digest file"),
        ('{"format":"parity-divergence"}', "f: not a parity-digest file"),
        ('{"format":"parity-digest","version":2}', "f: version 2 of parity-digest, this parity re"),
        ('{"format":"parity-digest","format":1}', "f: damaged: field format stands twice"),
        ("[" * 9999, "f: damaged: not JSON: a number or a nesting too large"),
    ],
)
def test_other_text_is_refused_by_line(text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        from_text(text, "f")
    assert caught.value.message.startswith(said)


def test_fuzz_a_mutated_file_is_refused_or_is_the_same_tree() -> None:
    rng, tree = random.Random(SEED), grow(dump_of(small(3), engine="e"))
    text = to_text(tree).encode()
    words = [b"null", b"-1", b'"', b"[", b"0", b"AAAA", b"parity-digest"]
    well = 0
    for _ in range(BUDGET):
        data = mutated(text, words, rng)
        try:
            found = from_text(data.decode("utf-8", "replace"), "f")
        except InputError as error:
            well += error.message.startswith("f: ")
        else:
            well += to_text(found) == text.decode()
    assert well == BUDGET


def test_fuzz_altered_values_with_right_checks_never_end_otherwise() -> None:
    rng = random.Random(SEED)
    body = json.loads(to_text(grow(dump_of(small(2)))))
    for _ in range(BUDGET // 2):
        other = altered(json.loads(json.dumps(body)), rng)
        if isinstance(other, dict) and isinstance(other.get("check"), dict):
            other["check"] = {name: _check(other.get(name)) for name in body["check"]}
        try:
            tree = from_text(json.dumps(other), "f")
        except InputError:
            continue
        assert len(tree) == len(tree.layout)
        compare_trees(tree, tree)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    absent, odd = tmp_path / "absent", tmp_path / "odd"
    odd.write_bytes(b'{"format": "\xff"}')
    for path, said in ((absent, "No such file or directory"), (odd, "not UTF-8")):
        with pytest.raises(InputError) as caught:
            read_digest(path)
        assert caught.value.message == f"{path}: {said}"
    assert not is_digest_file(absent)
    assert not is_digest_file(tmp_path)
