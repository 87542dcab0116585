"""Damage to the header of a GGUF file: an InputError, or a model that loads; nothing else."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from parity.errors import InputError
from parity.model.checks import check_finite, check_shape, wanted_tensors
from parity.model.file_model import FileModel
from parity.model.gguf import open_gguf
from tests.core.gguf_files import Content, dense_content, file_bytes, header_bytes
from tests.core.gguf_hybrid import hybrid_content

LONGEST = 5.0  # seconds; an undamaged file takes milliseconds

CONTENTS = {
    "dense Q4_0": dense_content(kind="Q4_0"),
    "hybrid with experts": hybrid_content("qwen35moe")[0],
}


def load(model: FileModel) -> None:
    """Make and check every tensor, as loading does, without its threads."""
    wanted = wanted_tensors(model.config, frozenset(model.names()))
    assert set(wanted) == set(model.names())
    for name in model.names():
        array = np.ascontiguousarray(model.tensor(name))
        check_shape(name, array, wanted[name])
        check_finite(name, array)


def damaged(content: Content, masks: Iterator[tuple[int, int]], path: Path) -> Counter[str]:
    """Change one byte after the other by a mask, and count what becomes of the file."""
    data = bytearray(file_bytes(content))
    found: Counter[str] = Counter()
    for at, mask in masks:
        data[at] ^= mask
        path.write_bytes(data)
        data[at] ^= mask
        started = time.monotonic()
        try:
            load(open_gguf(path))
        except InputError:
            found["refused"] += 1
        else:
            found["loads"] += 1
        assert time.monotonic() - started < LONGEST, f"byte {at} by {mask:#x}"
    return found


@pytest.mark.parametrize("name", CONTENTS)
def test_every_byte_of_the_header(name: str, tmp_path: Path) -> None:
    """All bits of a byte, or one of the next byte: a number takes a large or a small step."""
    content = CONTENTS[name]
    size = len(header_bytes(content))
    masks = ((at, 1 << (at // 2) % 8 if at % 2 else 0xFF) for at in range(size))
    found = damaged(content, masks, tmp_path / "model.gguf")
    assert found.total() == size
    # What still loads: another name, constants such as theta, other letters in unread keys.
    assert found["refused"] > size // 2
    assert found["loads"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTENTS)
def test_every_bit_of_the_header(name: str, tmp_path: Path) -> None:
    content = CONTENTS[name]
    size = len(header_bytes(content))
    masks = ((at, 1 << bit) for at in range(size) for bit in range(8))
    assert damaged(content, masks, tmp_path / "model.gguf").total() == 8 * size


def test_every_cut_of_the_header(tmp_path: Path) -> None:
    content = CONTENTS["dense Q4_0"]
    data, path = file_bytes(content), tmp_path / "model.gguf"
    for length in range(len(header_bytes(content))):
        path.write_bytes(data[:length])
        with pytest.raises(InputError):
            open_gguf(path)
