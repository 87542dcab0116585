"""Order files: the same order gives the same bytes and comes back; a damaged one is refused."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.errors import InputError, ParityBug
from parity.order.answer import Answer, Certified, Noise
from parity.order.file import (
    Asked,
    OrderFile,
    _check,
    _text,
    file_of,
    from_text,
    order_of,
    plain_of,
    read_order,
    to_text,
)
from parity.order.rows import Rows
from parity.order.tree import Order, Tree
from tests.order.exact_order import random_order

ORDER = Order(
    Tree.of((((0, 1, 2, 3), 4, 5, 6), (7, (8, 9)))),
    dtype="bf16",
    out="bf16",
    fma=frozenset({7, 8}),
    wide=frozenset({13}),
    bits=2,
    rounding="rz",
    narrow=frozenset({11}),
    stored="bf16",
    settings=(("eps", "1e-6"),),
)
ROWS = Rows(
    np.array([1.5, -2.0], np.float32),
    None,
    np.ones(10, np.float32),
    np.eye(2, 10, dtype=np.float32),
)
FILE = OrderFile(
    "torch.linear",
    {"device": "CPU", "batch": "M 1"},
    ORDER,
    99,
    3,
    Asked(40, 0),
    Asked(64, 0),
    (ROWS,),
)
PLAIN: dict[str, Any] = json.loads(to_text(FILE))


def resealed(plain: dict[str, Any]) -> str:
    """The text of altered data, its check made anew."""
    return _text({**plain, "check": _check(plain)})


def refused(text: str) -> str:
    """What a text is refused for; the message names the file and is one line, the status is 2."""
    with pytest.raises(InputError) as caught:
        from_text(text, "a file")
    assert caught.value.exit_status == 2
    assert caught.value.message.startswith("a file: ")
    assert "\n" not in caught.value.message
    return caught.value.message.removeprefix("a file: ")


def test_what_was_written_is_read_again() -> None:
    found = from_text(to_text(FILE), "it")
    assert replace(found, rows=()) == replace(FILE, rows=())
    (rows,) = found.rows
    assert rows.out.tobytes() == ROWS.out.tobytes()
    assert rows.x is not None
    assert rows.x.tobytes() == np.ones(10, np.float32).tobytes()
    assert rows.w is not None
    assert rows.w.tobytes() == np.eye(2, 10, dtype=np.float32).tobytes()


def test_the_same_order_gives_the_same_bytes() -> None:
    """Whatever order its key was filled in; and there is no number that is no integer."""
    other = replace(FILE, key=dict(reversed(FILE.key.items())))
    assert to_text(other) == to_text(FILE) == to_text(from_text(to_text(FILE), "it"))
    json.loads(to_text(FILE), parse_float=lambda text: pytest.fail(text))


def test_a_regular_tree_is_one_line_and_another_is_nested() -> None:
    assert plain_of(Order(Tree.of(((0, 1), 2))))["tree"] == "chain[0..2]"
    tree = Tree.of((((5, 0), (3, 1)), (2, 4)))
    nested = plain_of(Order(tree))
    nested["tree"] = tree.text()
    assert order_of(nested, "it").tree == tree


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32))
def test_any_order_comes_back(seed: int) -> None:
    order = random_order(random.Random(seed), most=30)
    assert order_of(json.loads(json.dumps(plain_of(order))), "it") == order


def test_an_irregular_tree_comes_back() -> None:
    rng = random.Random(4)
    for most in (400, 900):
        order = random_order(rng, most=most)
        assert order_of(plain_of(order), "it") == order


def test_only_a_green_answer_becomes_a_file() -> None:
    green = Answer("tree", ORDER, 9, 1, certify=Certified(40, 0), noise=Noise(64, 0, 64, False))
    found = file_of(green, "an op", {"device": "CPU"})
    assert (found.order, found.certify, found.noise) == (ORDER, Asked(40, 0), Asked(64, 0))
    for verdict in ("no tree", "tree, not explained"):
        with pytest.raises(InputError) as caught:
            file_of(replace(green, verdict=verdict), "an op", {})  # type: ignore[arg-type]
        assert caught.value.message == f"an op: {verdict}"


def test_red_a_value_that_the_format_does_not_hold_is_never_written() -> None:
    rows = Rows(np.array([1.0], np.float32), None, None, np.array([[1 + 2.0**-12]], np.float32))
    order = Order(Tree.of(0), "values", "bf16")
    with pytest.raises(ParityBug, match="not exact in bf16"):
        to_text(replace(FILE, order=order, rows=(rows,)))


# --- refused --------------------------------------------------------------------------------------


def test_red_every_cut_of_a_file_is_refused() -> None:
    text = to_text(FILE)
    for end in range(0, len(text) - 2, 7):
        assert refused(text[:end]).startswith("damaged: no whole JSON text: ")


def test_red_every_changed_character_is_refused() -> None:
    """A digit or letter anywhere becomes another one: some field is of no known kind, or the check
    does not fit."""
    text, rng = to_text(FILE), random.Random(1)
    for at in [k for k, character in enumerate(text) if character.isalnum()][::3]:
        other = rng.choice([c for c in "0123456789abcdefxyz" if c != text[at]])
        refused(text[:at] + other + text[at + 1 :])


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("format", "parity-digest", "no order file: its format is not parity-order"),
        ("version", 2, "version 2, this parity reads 1"),
        ("version", None, "version None, this parity reads 1"),
        ("check", "0" * 16, "damaged: its check does not fit what it holds"),
        ("probes", "9", "damaged: 'probes' is of another kind"),
        ("probes", -9, "damaged: probes or calls below 0"),
        ("probes", 1.5, "damaged: 'probes' is of another kind"),
        ("key", {"device": 1}, "damaged: \"key['device']\" is of another kind"),
        ("more", 1, "damaged: 'more' is unknown"),
        ("certify", {"asked": 1, "contradicted": 2}, "damaged: certify: 2 of 1 contradicted"),
        ("noise", {"asked": 1}, "noise: damaged: 'contradicted' is missing"),
        ("rows", [{}], "damaged: rows: count is None, not 1 to 1048576"),
    ],
)
def test_red_a_field_of_a_file(field: str, value: Any, message: str) -> None:
    plain = {**PLAIN, field: value}
    assert refused(_text(plain) if field == "check" else resealed(plain)) == message


@pytest.mark.parametrize("field", sorted(PLAIN))
def test_red_a_missing_field(field: str) -> None:
    plain = {name: value for name, value in PLAIN.items() if name != field}
    found = refused(_text(plain))
    assert found in (
        f"damaged: {field!r} is missing",
        "no order file: its format is not parity-order",
        "version None, this parity reads 1",
    )


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("n", 0, "n is 0, not 1 to 1048576"),
        ("n", 9, "its tree has more terms, n is 9"),
        ("n", 11, "its tree has 10 terms, n is 11"),
        ("n", 1 << 40, "n is 1099511627776, not 1 to 1048576"),
        ("tree", "chain[0..9]", "its order has the digest"),
        ("tree", "chain[0..8; 8]", "a tree of 10 leaves uses node 8 twice"),
        ("tree", "chain[0..4; 5 x (step 1) 4]", "a tree of 10 leaves uses node 4 twice"),
        ("tree", "chain[1099511627776 x (step 1) 0]", "its tree has more terms, n is 10"),
        ("tree", "chain[0..9", "the tree cannot be read at character 10: 'its end'"),
        ("tree", "((0 1) 2", "its tree is not whole"),
        ("tree", "(0 1))", "its tree closes what it did not open"),
        ("tree", "(0 1) + 2", "its tree cannot be read"),
        ("fma", "7, 7", "fma has a member twice"),
        ("fma", "10", "fma has a member that is not 0 to 9"),
        ("fma", "0..999999999", "fma has more members than there are"),
        ("fma", "(7 + 8)", "'(7 + 8)' is no list of leaves"),
        ("wide", "3", "wide has a member that is not 10 to 14"),
        ("narrow", "14, 15", "narrow has a member that is not 10 to 14"),
        ("terms", "cubes", "terms 'cubes'"),
        ("rounding", "up", "rounding 'up'"),
        ("bits", -1, "-1 alignment bits"),
        ("bits", 3, "its order has the digest"),
        ("stored", "f8", "stored 'f8'"),
        ("digest", "", "its order has the digest"),
    ],
)
def test_red_a_field_of_an_order(field: str, value: Any, message: str) -> None:
    order = {**PLAIN["order"], field: value}
    found = refused(resealed({**PLAIN, "order": order}))
    assert found.startswith(f"damaged: {message}")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": 3}, "out has 4 bytes, not 6"),
        ({"count": True}, "count is True, not 1 to 1048576"),
        ({"count": 0}, "count is 0, not 1 to 1048576"),
        ({"out": "AA"}, "out is no base64 text"),
        ({"out": "wD8="}, "out has 2 bytes, not 4"),
        ({"x": ""}, "x has 0 bytes, not 20"),
        ({"w": 7}, "w is missing"),
        ({"z": ""}, "neither a seed nor x and w"),
    ],
)
def test_red_a_field_of_rows(change: dict[str, Any], message: str) -> None:
    rows = {**PLAIN["rows"][0], **change}
    assert refused(resealed({**PLAIN, "rows": [rows]})) == f"damaged: rows: {message}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": -1}, "seed -1"),
        ({"seed": 1.0}, "seed 1.0"),
        ({"kind": "noise 3"}, "kind 'noise 3' is unknown"),
    ],
)
def test_red_rows_of_a_seed(change: dict[str, Any], message: str) -> None:
    rows = {"count": 1, "out": "wD8=", "kind": "noise 1", "seed": 7, **change}
    assert refused(resealed({**PLAIN, "rows": [rows]})) == f"damaged: rows: {message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "damaged: no JSON object"),
        ('{"format": 1, "format": 2}', "damaged: no whole JSON text: a name stands there twice"),
        ('{"format": NaN}', "damaged: no whole JSON text: NaN is no number"),
        ("[" * 100_000, "damaged: no whole JSON text: "),
    ],
)
def test_red_a_text_that_is_no_order(text: str, message: str) -> None:
    assert refused(text).startswith(message)


def test_red_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_order(tmp_path / "none.order.json")
    assert caught.value.message.endswith("none.order.json: No such file or directory")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe{}")
    with pytest.raises(InputError) as caught:
        read_order(tmp_path / "bytes")
    assert caught.value.message.endswith("bytes: not UTF-8")


ODD: list[Any] = [
    None,
    True,
    -1,
    0,
    3,
    1 << 70,
    1.5,
    "",
    "0",
    "7, 7",
    "chain[0]",
    "é\n",
    [],
    [{}],
    {},
]
ODD += [{"asked": -1, "contradicted": 0}, {"count": 1, "out": ""}, "chain[" * 90, "0..3 step 0"]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place of a JSON value, outermost first."""
    found = [path] if path else []
    inner = (
        value if isinstance(value, dict) else range(len(value) if isinstance(value, list) else 0)
    )
    for name in inner:
        found += places(value[name], (*path, name))
    return found


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    copy = json.loads(json.dumps(value))
    at = copy
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = new
    return copy


def said_of(text: str) -> str:
    """What a text is refused for, or "" where it is sound and canonical."""
    try:
        found = from_text(text, "it")
    except InputError as error:
        return error.message
    assert to_text(found) == text
    return ""


def test_red_another_value_anywhere_is_refused_in_one_line() -> None:
    """Resealed, so that not the check but the field is refused, or the value is a sound one."""
    said = [said_of(resealed(changed(PLAIN, path, new))) for path in places(PLAIN) for new in ODD]
    assert all("\n" not in text and len(text) < 250 for text in said)
    assert sum(map(bool, said)) > 0.9 * len(said)
