"""The line protocol's replies: what is read, and every way in which one can be malformed."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.dump import TensorType
from parity.errors import InputError
from parity.fnv import BASES, fnv1a64_array
from parity.keys import Key
from parity.program import codec
from parity.program.reply import Reply

ROW = "row 3\nt3_l0_attn 0123456789abcdef f32[2]\nlogits 0000803f000000c0\n"
NEXT = ROW.replace("3", "4", 1).replace("t3", "t4")
HELLO = "protocol 2\nengine mine 1.4\ncapabilities rows state\nvocab 9\nheader device A B\n"
LENGTHS = "part lengths int32[1] 02000000\n"
PART = "part l0_k f32[2,1] 0000803f000000c0\n"


def fed(begins: str, text: str | bytes, request: str = "ask", pieces: int = 1 << 16) -> Reply:
    """The reply of these lines and ``ok``, fed in pieces."""
    reply = Reply("exec:x", request, begins)
    data = text if isinstance(text, bytes) else f"{text}ok\n".encode()
    for at in range(0, len(data), pieces):
        reply.feed(data[at : at + pieces])
    return reply


def rows(text: str, start: int = 3, count: int = 1, *, tapped: bool = True) -> list[codec.Row]:
    """What a reply with rows of two logits is read as."""
    reply = fed(codec.ROWS, text, "step 7")
    return codec.read_rows(reply, start, count, 2, tapped=tapped)


def parts(text: str) -> dict[str, np.ndarray]:
    return codec.read_parts(fed(codec.PARTS, text, "state"))


def hello(text: str) -> codec.Hello:
    return codec.read_hello(fed(codec.HELLO, text, "hello 2"))


@pytest.mark.parametrize("pieces", [1, 7, 1 << 16])
def test_rows_are_read(pieces: int) -> None:
    reply = fed(codec.ROWS, ROW + NEXT, pieces=pieces)
    assert reply.complete
    found = codec.read_rows(reply, 3, 2, 2, tapped=True)
    assert [row.pos for row in found] == [3, 4]
    assert found[0].entries[0].key == Key(3, 0, "attn")
    assert found[0].entries[0].value_text() == "0123456789abcdef f32[2]"
    assert found[1].logits.dtype == np.float32
    assert found[1].logits.tolist() == [1.0, -2.0]
    found[1].logits[0] = 5  # the caller's own


def test_hello_is_read() -> None:
    told = hello(HELLO)
    assert (told.protocol, told.engine, told.version, told.vocab) == (2, "mine", "1.4", 9)
    assert told.capabilities == {"rows", "state"}
    assert told.header == {"device": "A B"}
    least = hello("protocol 2\nengine mine 1\ncapabilities\n")
    assert (least.capabilities, least.vocab, least.header) == (frozenset(), None, {})


def test_other_replies_are_read() -> None:
    counts = codec.read_counts(fed(codec.COUNTS, "count a 0\ncount b.c-d 12\n"))
    assert counts == {"a": 0, "b.c-d": 12}
    weight = "weight layers.0.q_proj.d f16[2,3] 00000000000000ff\n"
    told = codec.read_weights(fed(codec.WEIGHTS, weight))
    assert told == {"layers.0.q_proj.d": (TensorType("f16", (2, 3)), 255)}
    codec.read_nothing(fed(codec.NOTHING, ""))
    refused = fed(codec.NOTHING, b"error no mark\n")
    assert (refused.complete, refused.error, refused.error_text) == (
        True,
        "no mark",
        "error no mark",
    )


_DTYPES = ("float16", "float32", "float64", "bool", "int8", "int32", "int64", "uint8", "uint16")
_SHAPES = ((), (0,), (1,), (3,), (2, 3), (2, 0, 3))


@given(st.sampled_from(_DTYPES), st.sampled_from(_SHAPES), st.randoms(use_true_random=False))
def test_any_array_survives_the_way_there_and_back(
    dtype: str, shape: tuple[int, ...], rng: random.Random
) -> None:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    data = bytes(rng.randrange(2 if dtype == "bool" else 256) for _ in range(size))
    array = np.frombuffer(data, dtype).reshape(shape)
    state = {"lengths": np.array([7], np.int32), "l12_hist": array}
    lines = codec.part_lines(state)
    found = parts("".join(f"{line}\n" for line in lines))
    assert list(found) == list(state)
    assert found["l12_hist"].dtype == array.dtype
    assert found["l12_hist"].shape == shape
    assert found["l12_hist"].tobytes() == data


@pytest.mark.parametrize(
    ("array", "nonfinite"),
    [
        (np.array([1, 2], np.float32), None),
        (np.array([1, np.nan, np.inf], np.float32), (2, 1)),
        (np.array([3], np.int32), None),
        (np.arange(16, dtype=np.float32)[::2], None),
    ],
)
def test_entry_of_a_value(array: np.ndarray, nonfinite: tuple[int, int] | None) -> None:
    entry = codec.entry_of(Key(0, None, "logits"), array, BASES["kestrel-fnv"])
    assert entry.nonfinite == nonfinite
    assert entry.digest == fnv1a64_array(array, BASES["kestrel-fnv"])
    assert entry.type is not None
    assert entry.type.shape == array.shape


# --- red: each malformed line is named with its request

_RECORD = "t3_l0_attn 0123456789abcdef f32[2]"
_ROWS_RED = [
    ("row 4\nlogits 0000803f000000c0\n", 1, "row 3 belongs here: 'row 4'"),
    ("row 03\nlogits 00\n", 1, "row 3 belongs here: 'row 03'"),
    ("logits 0000803f000000c0\n", 1, "row 3 belongs here: 'logits 0000803f000000c0'"),
    ("row 3\n", None, "it ends where a key or logits HEX belongs"),
    ("", None, "it ends where row 3 belongs"),
    ("row 3\nrow 3\n", 2, "a key or logits HEX belongs here: 'row 3'"),
    (ROW + NEXT, 4, "more than the 1 rows asked for: 'row 4'"),
    (ROW.replace("f000000c0", "f"), 3, "1 logits, not 2 logits: 'logits 0000803f'"),
    (ROW.replace("00c0\n", "00\n"), 3, "7 bytes, not 2 logits: 'logits 0000803f000000'"),
    (ROW.replace("c0\n", "C0\n"), 3, "not bytes as pairs of lower-case hex digits: "),
    (ROW.replace("c0\n", "c\n"), 3, "not bytes as pairs of lower-case hex digits: "),
    (ROW.replace("c0\n", " 0\n"), 3, "not bytes as pairs of lower-case hex digits: "),
    (ROW.replace("000000c0", "zz0000c0"), 3, "not bytes as pairs of lower-case hex digits: "),
    (ROW.replace("t3", "t4"), 2, "a key of another position than 3: 't4_l0_attn 01"),
    (ROW.replace(_RECORD, f"{_RECORD}\n{_RECORD}"), 3, "a key for the second time: 't3"),
    (ROW.replace("_l0_", "_l07_"), 2, "not a key: 't3_l07_attn': 't3_l07_attn"),
    (ROW.replace("f32[2]", "f32"), 2, "type 'f32' is not dtype[shape]: 't3"),
    (ROW.replace("f32[2]", "f32[2] nonfinite=0@1"), 2, "nonfinite '0@1' is not count@index: 't3"),
    (ROW.replace(" f32[2]", ""), 2, "KEY HASH DTYPE[SHAPE] and no more, but nonfinite=N@I belongs"),
    (ROW.replace("0123456789abcdef", "0123456789abcde"), 2, "KEY HASH DTYPE[SHAPE] and no more"),
    (ROW.replace("0123456789abcdef", "0123456789ABCDEF"), 2, "KEY HASH DTYPE[SHAPE] and no more"),
    (ROW.replace("f32[2]", " f32[2]"), 2, "KEY HASH DTYPE[SHAPE] and no more"),
    (ROW.replace("f32[2]", "f32[2]\r"), 2, "KEY HASH DTYPE[SHAPE] and no more"),
]


@pytest.mark.parametrize(("text", "line", "what"), _ROWS_RED)
def test_red_rows(text: str, line: int | None, what: str) -> None:
    where = "" if line is None else f", line {line}"
    with pytest.raises(InputError) as caught:
        rows(text)
    assert caught.value.message.startswith(f"exec:x: reply to 'step 7'{where}: {what}")


def test_red_rows_in_another_order() -> None:
    with pytest.raises(InputError, match="line 1: row 3 belongs here: 'row 4'"):
        rows(NEXT + ROW, count=2)
    with pytest.raises(InputError, match="it ends where row 4 belongs"):
        rows(ROW, count=2)


def test_red_key_without_a_tap() -> None:
    with pytest.raises(InputError, match="line 2: a key, and the tap is off: 't3_l0_attn"):
        rows(ROW, tapped=False)


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("", None, "it ends where protocol NUMBER belongs"),
        (HELLO.replace("protocol 2", "protocol two"), 1, "protocol NUMBER belongs here"),
        (HELLO.replace("engine mine 1.4", "engine mine"), 2, "engine NAME VERSION belongs here"),
        (HELLO.replace("engine mine 1.4\n", ""), 2, "engine NAME VERSION belongs here"),
        (HELLO.replace("rows state", "rows fast"), 3, "capabilities are, each once, rows rollback"),
        (HELLO.replace("rows state", "rows rows"), 3, "capabilities are, each once, rows rollback"),
        (HELLO.replace("rows state", "rows  state"), 3, "capabilities WORDS belongs here"),
        (HELLO.replace("vocab 9", "vocab 0"), 4, "vocab NUMBER belongs here"),
        (HELLO.replace("header device A B", "header device"), 5, "not header NAME VALUE"),
        (HELLO.replace("header device A B", "header Device A"), 5, "not header NAME VALUE"),
        (HELLO.replace("header device A B", "header device A\x07"), 5, "not header NAME VALUE"),
        (HELLO.replace("device A B", "tokens 1,2"), 5, "a header that parity writes itself"),
        (HELLO + "header device C\n", 6, "a header that was told before"),
        (HELLO + "engine again 2\n", 6, "header NAME VALUE belongs here"),
    ],
)
def test_red_hello(text: str, line: int | None, what: str) -> None:
    where = "" if line is None else f", line {line}"
    with pytest.raises(InputError) as caught:
        hello(text)
    assert caught.value.message.startswith(f"exec:x: reply to 'hello 2'{where}: {what}")


def test_red_newer_protocol() -> None:
    with pytest.raises(InputError) as caught:
        hello(HELLO.replace("protocol 2", "protocol 3"))
    assert caught.value.message == "exec:x: speaks protocol 3; this parity knows 1 to 2"


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("", None, "no part, not even lengths"),
        (PART, 1, "the first part is lengths int32[1]: 'part l0_k"),
        (LENGTHS.replace("int32[1]", "int32[]"), 1, "the first part is lengths int32[1]"),
        (LENGTHS.replace("int32[1]", "f32[1]"), 1, "the first part is lengths int32[1]"),
        (LENGTHS + LENGTHS, 2, "a part for the second time"),
        (LENGTHS + PART.replace("l0_k", "cache"), 2, "a part is named l<layer>_<name>"),
        (LENGTHS + PART.replace("f32[2,1]", "f32[1,2]"), 2, "l0_k has one row for each of 2 pos"),
        (LENGTHS + PART.replace("f32[2,1]", "f32[2,2]"), 2, "8 bytes, f32[2,2] has 16"),
        (LENGTHS + PART.replace("f32[2,1]", "bf16[2,2]"), 2, "dtype bf16 is none of f16 f32 f64"),
        (LENGTHS + PART.replace("f32[2,1]", "f32[2;1]"), 2, "type 'f32[2;1]' is not dtype[shape]"),
        (LENGTHS + PART.replace("c0\n", "C0\n"), 2, "not bytes as pairs of lower-case hex digits"),
        (LENGTHS + PART.replace(" 0000803f000000c0", ""), 2, "not part NAME DTYPE[SHAPE] HEX"),
        (LENGTHS + PART.replace("0000803f000000c0", "-"), 2, "0 bytes, f32[2,1] has 8"),
    ],
)
def test_red_parts(text: str, line: int | None, what: str) -> None:
    where = "" if line is None else f", line {line}"
    with pytest.raises(InputError) as caught:
        parts(text)
    assert caught.value.message.startswith(f"exec:x: reply to 'state'{where}: {what}")


@pytest.mark.parametrize(
    ("begins", "read", "text", "what"),
    [
        (codec.COUNTS, codec.read_counts, "count a -1\n", "not count NAME NUMBER: 'count a -1'"),
        (codec.COUNTS, codec.read_counts, "count a 01\n", "not count NAME NUMBER"),
        (codec.COUNTS, codec.read_counts, "count a 1.5\n", "not count NAME NUMBER"),
        (codec.WEIGHTS, codec.read_weights, "weight a f32[1] 12\n", "not weight NAME DTYPE[SHAPE]"),
        (
            codec.WEIGHTS,
            codec.read_weights,
            f"weight a f32 {'0' * 16}\n",
            "type 'f32' is not dtype[shape]",
        ),
    ],
)
def test_red_counts_and_weights(
    begins: str, read: Callable[[Reply], Any], text: str, what: str
) -> None:
    with pytest.raises(InputError) as caught:
        read(fed(begins, text))
    assert caught.value.message.startswith(f"exec:x: reply to 'ask', line 1: {what}")


def test_red_twice_told_counts_and_weights() -> None:
    with pytest.raises(InputError, match="line 2: a counter for the second time: 'count a 2'"):
        codec.read_counts(fed(codec.COUNTS, "count a 1\ncount a 2\n"))
    told = f"weight a f32[1] {'0' * 16}\n"
    with pytest.raises(InputError, match="line 2: a tensor told twice"):
        codec.read_weights(fed(codec.WEIGHTS, told * 2))


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (b"loading the model\n", ", line 1: it does not belong here: 'loading the model'"),
        (b"ok \n", ", line 1: it does not belong here: 'ok '"),
        (b"OK\n", ", line 1: it does not belong here: 'OK'"),
        (b"ok\r\n", r", line 1: it does not belong here: 'ok\r'"),
        (b"error\n", ", line 1: it does not belong here: 'error'"),
        (b"\n", ", line 1: it does not belong here: ''"),
        (b"\xff\xfe\n", ", line 1: it does not belong here: '��'"),
        (b"ok\nr", ", line 1: it goes on after its last line: 'r'"),
        (b"row 3\nok\nr", ", line 2: it goes on after its last line: 'r'"),
    ],
)
@pytest.mark.parametrize("pieces", [1, 1 << 16])
def test_red_line_that_is_none_of_the_reply(data: bytes, where: str, pieces: int) -> None:
    with pytest.raises(InputError) as caught:
        fed(codec.ROWS, data, "step 7", pieces)
    assert caught.value.message == f"exec:x: reply to 'step 7'{where}"
    assert caught.value.next_step == "the protocol is docs/exec.md; logs belong on stderr"


def test_long_lines_and_requests_are_cut_in_messages() -> None:
    with pytest.raises(InputError) as caught:
        fed(codec.ROWS, b"x" * 100 + b"\n", "prefill " + "1 " * 100)
    wanted = f"{'prefill ' + '1 ' * 20}...', line 1: it does not belong here: '{'x' * 48}...'"
    assert caught.value.message == f"exec:x: reply to '{wanted}"


@given(st.randoms(use_true_random=False))
def test_a_reply_with_any_byte_changed_is_refused_or_read_as_what_it_says(
    rng: random.Random,
) -> None:
    """No other exception, no value that the bytes do not say."""
    data = bytearray((ROW + NEXT).encode() + b"ok\n")
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data))
        kind = rng.randrange(3)
        if kind == 0:
            data[at] = rng.choice(b"0123456789abcdef \n\r\0\xfftlr_[]")
        elif kind == 1:
            del data[at]
        else:
            data.insert(at, rng.choice(b"0a \n\xff"))
    refused = ""
    try:
        reply = fed(codec.ROWS, bytes(data))
        found = codec.read_rows(reply, 3, 2, 2, tapped=True)
    except InputError as error:
        refused = error.message
    if refused:
        assert refused.startswith("exec:x: reply to 'ask'")
        return
    if reply.error is not None or not reply.complete:
        return
    lines = []
    for row in found:
        lines.append(f"row {row.pos}")
        lines += [f"{entry.key} {entry.value_text()}" for entry in row.entries]
        lines.append(f"logits {struct.pack('<2f', *row.logits).hex()}")
    if not np.isnan(np.concatenate([row.logits for row in found])).any():
        assert "\n".join([*lines, "ok", ""]).encode() == bytes(data)
