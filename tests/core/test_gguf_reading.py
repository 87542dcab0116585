"""The GGUF container: a whole file is read to the byte, any other is refused by name (B29)."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from parity.errors import InputError, NotRunError
from parity.model.gguf.reading import WRITE_AGAIN, read_gguf
from parity.status import ExitStatus
from tests.core.gguf_files import (
    U32,
    Content,
    Tensor,
    dense_content,
    f32,
    file_bytes,
    header_bytes,
    text,
)


@pytest.fixture
def refused(tmp_path: Path) -> Callable[[bytes], str]:
    """Write the bytes to a file, demand an InputError of exit status 2, and give its message
    without the path."""
    path = tmp_path / "model.gguf"

    def message(data: bytes) -> str:
        path.write_bytes(data)
        with pytest.raises(InputError) as caught:
            read_gguf(path)
        assert caught.value.exit_status == ExitStatus.USAGE == 2
        assert caught.value.next_step
        assert "\n" not in caught.value.message
        return caught.value.message.removeprefix(f"{path}: ")

    return message


def two() -> Content:
    """Two tensors of 160 and 128 bytes; the first one lies at offset 0."""
    return Content(
        {"general.architecture": "qwen3", "some.list": [1, 2], "some.text": "ü", "some.flag": True},
        {"first": f32(np.arange(40).reshape(5, 8)), "second": f32(np.ones(32))},
    )


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(file_bytes(two()))
    file = read_gguf(path)
    assert file.values == {
        "general.architecture": "qwen3",
        "some.list": [1, 2],
        "some.text": "ü",
        "some.flag": True,
    }
    assert list(file.tensors) == ["first", "second"]
    first = file.tensors["first"]
    assert first.begin == len(header_bytes(two())) + -len(header_bytes(two())) % 32
    assert (first.shape, first.kind, first.size) == ((5, 8), "F32", 160)
    assert file.blocks(first).tobytes() == two().tensors["first"].data


def test_the_bytes_are_mapped_and_never_written(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(file_bytes(two()))
    file = read_gguf(path)
    blocks = file.blocks(file.tensors["first"])
    assert np.shares_memory(blocks, file.data)
    blocks[...] = 0xFF
    assert path.read_bytes() == file_bytes(two())


def test_the_gguf_packages_reader_finds_the_same(tmp_path: Path) -> None:
    from gguf import GGUFReader

    path = tmp_path / "model.gguf"
    path.write_bytes(file_bytes(dense_content(kind="Q4_0")))
    ours, theirs = read_gguf(path), GGUFReader(path)
    assert len(theirs.tensors) == len(ours.tensors) == 14
    for tensor in theirs.tensors:
        found = ours.tensors[tensor.name]
        assert found.kind == tensor.tensor_type.name
        assert found.shape == tuple(tensor.shape.tolist())[::-1]
        assert found.begin == tensor.data_offset
        assert ours.blocks(found).tobytes() == tensor.data.tobytes()
    for key, value in ours.values.items():
        assert theirs.fields[key].contents() == value


def test_one_byte_shorter(refused: Callable[[bytes], str]) -> None:
    data = file_bytes(two())
    assert (
        refused(data[:-1]) == f"tensor second ends at byte {len(data)}, the file at {len(data) - 1}"
    )


def test_one_q4_block_shorter(refused: Callable[[bytes], str]) -> None:
    content = Content({}, {"only": Tensor((2, 64), bytes(4 * 18), "Q4_0")})
    data = file_bytes(content)
    end = len(data) - -(4 * 18) % 32
    assert refused(data[: end - 18]) == f"tensor only ends at byte {end}, the file at {end - 18}"


def test_padding_after_the_last_tensor_is_whole_or_absent(
    refused: Callable[[bytes], str], tmp_path: Path
) -> None:
    content = Content({}, {"only": Tensor((2, 64), bytes(4 * 18), "Q4_0")})
    data = file_bytes(content)
    end = len(data) - -(4 * 18) % 32
    assert refused(data[:-1]) == f"the tensors end at byte {end}, the file at {len(data) - 1}"
    assert refused(data + b"x") == f"the tensors end at byte {end}, the file at {len(data) + 1}"
    (tmp_path / "bare.gguf").write_bytes(data[:end])
    assert list(read_gguf(tmp_path / "bare.gguf").tensors) == ["only"]


def test_every_cut_inside_the_header(refused: Callable[[bytes], str]) -> None:
    data = file_bytes(two())
    for length in range(1, len(header_bytes(two()))):
        assert refused(data[:length])
    assert refused(b"") == "the file is empty"


def test_a_cut_names_the_field(refused: Callable[[bytes], str]) -> None:
    data = file_bytes(two())
    at = data.index(b"some.list") + len("some.list")
    assert refused(data[: at + 2]) == f"some.list: 4 bytes at byte {at}, the file ends 2 later"


def test_an_offset_that_wraps(refused: Callable[[bytes], str]) -> None:
    content = two()
    moved = replace(content.tensors["second"], offset=2**64 - 32)
    message = refused(file_bytes(content.tensors_with({"second": moved})))
    assert message == f"tensor second leaves a gap: offset {2**64 - 32}, 160 expected"


def test_sizes_whose_product_wraps(refused: Callable[[bytes], str]) -> None:
    content = Content({}, {"huge": Tensor((4,), bytes(16), dims=(2**32, 2**32, 4))})
    assert refused(file_bytes(content)).startswith(f"tensor huge ends at byte {2**68 + 96}")


def test_overlap_and_gap(refused: Callable[[bytes], str]) -> None:
    content = two()
    for offset, how in ((128, "overlaps the tensor before it"), (192, "leaves a gap")):
        moved = replace(content.tensors["second"], offset=offset)
        message = refused(file_bytes(content.tensors_with({"second": moved})))
        assert message == f"tensor second {how}: offset {offset}, 160 expected"


def test_an_offset_off_the_alignment(refused: Callable[[bytes], str]) -> None:
    moved = replace(two().tensors["second"], offset=161)
    message = refused(file_bytes(two().tensors_with({"second": moved})))
    assert message == "tensor second leaves a gap: offset 161, 160 expected"


@pytest.mark.parametrize("alignment", [0, 48, -32])
def test_alignment_that_is_no_power_of_two(refused: Callable[[bytes], str], alignment: int) -> None:
    content = two().values_with({"general.alignment": alignment})
    assert refused(file_bytes(content)) == f"general.alignment is {alignment}, no power of two"


def test_another_alignment(tmp_path: Path) -> None:
    content = replace(two().values_with({"general.alignment": U32(64)}), alignment=64)
    (tmp_path / "model.gguf").write_bytes(file_bytes(content))
    file = read_gguf(tmp_path / "model.gguf")
    assert [tensor.begin % 64 for tensor in file.tensors.values()] == [0, 0]
    assert file.blocks(file.tensors["second"]).tobytes() == content.tensors["second"].data


@pytest.mark.parametrize("dimensions", [0, 5, 9])
def test_dimensions(refused: Callable[[bytes], str], dimensions: int) -> None:
    data = file_bytes(Content({}, {"only": f32(np.ones(8))}))
    at = data.index(b"only") + 4
    data = (
        data[:at] + struct.pack(f"<I{dimensions}Q", dimensions, *[1] * dimensions) + data[at + 12 :]
    )
    assert refused(data) == f"tensor only has {dimensions} dimensions, 1 to 4 are possible"


def test_more_tensors_stated_than_there_are(refused: Callable[[bytes], str]) -> None:
    # What follows the entries is read as a third one: here the padding, a name of no length.
    content = replace(two(), counts=(3, None))
    assert refused(file_bytes(content)) == "tensor 3 of 3: '' is no name"


@pytest.mark.parametrize(
    ("counts", "where"),
    # The first tensor's entry passes for a fifth value; what comes after it is out of step.
    [((2**63, None), "tensor 3 of "), ((None, 2**63), "key 6 of "), ((None, 5), "tensor 1 of 2: ")],
    ids=["tensors", "values", "one value too many"],
)
def test_counts_past_the_end(
    refused: Callable[[bytes], str], counts: tuple[int | None, int | None], where: str
) -> None:
    assert refused(file_bytes(replace(two(), counts=counts))).startswith(where)


def test_a_tensor_twice(refused: Callable[[bytes], str]) -> None:
    assert refused(file_bytes(replace(two(), twice="first"))) == "tensor first appears twice"


def test_a_key_twice(refused: Callable[[bytes], str]) -> None:
    data = file_bytes(two()).replace(b"some.text", b"some.list")
    assert refused(data) == "key some.list appears twice"


def test_an_empty_tensor(refused: Callable[[bytes], str]) -> None:
    content = Content({}, {"only": Tensor((0, 8), b"")})
    assert refused(file_bytes(content)) == "tensor only is empty: [0, 8]"


def test_row_length_of_48(refused: Callable[[bytes], str]) -> None:
    content = Content({}, {"only": Tensor((2, 48), bytes(3 * 18), "Q4_0")})
    assert refused(file_bytes(content)) == "tensor only is Q4_0 with rows of 48, no multiple of 32"


def test_an_unsupported_type_by_name(tmp_path: Path) -> None:
    content = Content({}, {"only": Tensor((1, 256), bytes(176), "Q5_K")})
    (tmp_path / "model.gguf").write_bytes(file_bytes(content))
    with pytest.raises(InputError) as caught:
        read_gguf(tmp_path / "model.gguf")
    assert caught.value.message.endswith("tensor only is stored as Q5_K, which is not supported")
    assert caught.value.next_step == (
        "supported: Q4_0, Q4_1, Q6_K, Q8_0, F16, BF16, F32; convert the model to one of them"
    )


def test_types_that_do_not_exist(refused: Callable[[bytes], str]) -> None:
    data = file_bytes(Content({"a.key": 5}, {"only": f32(np.ones(8))}))
    at = data.index(b"only") + 4 + 4 + 8
    number = data[:at] + struct.pack("<I", 4) + data[at + 4 :]  # Q4_2, which was taken away
    assert refused(number) == "tensor only: there is no tensor type 4"
    at = data.index(b"a.key") + 5
    assert refused(data[:at] + struct.pack("<I", 13) + data[at + 4 :]) == (
        "a.key: there is no value type 13"
    )
    nested = data[:at] + struct.pack("<IIQ", 9, 9, 0) + data[at + 4 :]
    assert refused(nested) == "a.key: arrays of value type 9 are not supported"


def test_a_flag_of_two(refused: Callable[[bytes], str]) -> None:
    data = file_bytes(Content({"a.flag": True}, {}))
    at = data.index(b"a.flag") + 6 + 4
    assert refused(data[:at] + b"\x02" + data[at + 1 :]) == "a.flag: 2 is neither true nor false"


def test_lengths_past_the_end(refused: Callable[[bytes], str]) -> None:
    data = file_bytes(two())
    at = data.index(text("ü"))
    huge = data[:at] + struct.pack("<Q", 2**64 - 1) + data[at + 8 :]
    left = len(data) - at - 8
    assert refused(huge) == (
        f"some.text: {2**64 - 1} bytes at byte {at + 8}, the file ends {left} later"
    )
    at = data.index(b"some.list") + 9 + 4 + 4
    assert refused(data[:at] + struct.pack("<Q", 2**62) + data[at + 8 :]).startswith(
        f"some.list: {2**64} bytes at byte {at + 8}"
    )


def test_a_list_of_more_strings_than_bytes(refused: Callable[[bytes], str]) -> None:
    data = file_bytes(Content({"a.list": ["x"]}, {}))
    at = data.index(b"a.list") + 6 + 4 + 4
    message = refused(data[:at] + struct.pack("<Q", 2**60) + data[at + 8 :])
    assert (
        message == f"a.list: at least {2**63} bytes at byte {at + 8}, {len(data) - at - 8} are left"
    )


def test_names_are_text(refused: Callable[[bytes], str]) -> None:
    data = file_bytes(two())
    assert refused(data.replace(b"some.list", b"some\xfflist")) == (
        "key 2 of 4: b'some\\xfflist' is not UTF-8"
    )
    assert refused(data.replace(b"second", b"sec\nnd")) == "tensor 2 of 2: 'sec\\nnd' is no name"


def test_other_files(refused: Callable[[bytes], str]) -> None:
    data = file_bytes(two())
    assert refused(b"PK\x03\x04" + data) == "not a GGUF file: it begins with b'PK\\x03\\x04'"
    swapped = data[:4] + struct.pack(">I", 3) + data[8:]
    assert refused(swapped) == "the file is big-endian"
    assert refused(data[:4] + struct.pack("<I", 1) + data[8:]) == "GGUF version 1 is not supported"
    assert refused(data[:4] + struct.pack("<I", 4) + data[8:]) == "GGUF version 4 is not supported"


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be read: No such file or directory$"):
        read_gguf(tmp_path / "none.gguf")


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf.constants", None)
    with pytest.raises(NotRunError) as caught:
        read_gguf(tmp_path / "model.gguf")
    assert caught.value.exit_status == ExitStatus.NOT_RUN == 3
    assert caught.value.next_step == "run: pip install 'parity-harness[models]'"
    assert WRITE_AGAIN not in caught.value.next_step
