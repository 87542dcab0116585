"""Compare what was written before: two dumps, tensor files, or tensors at hand. No engine runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from parity.comparison.compare import compare_dumps
from parity.dump import Dump
from parity.errors import InputError
from parity.status import Verdict
from parity.tree import KeyState, Tree

if TYPE_CHECKING:
    from parity.comparison.alias import Rule
    from parity.dumps.tensor_files import Loader
    from parity.runs.engine_diff import Ask

CONTROL_SEED = 0
ELEMENTS = 12  # listed of the first key that differs
_WORTH_A_THREAD = 1 << 22  # bytes: some 0.02 s of reading
_CHECKPOINT = "save the tensors as a .safetensors: safetensors.torch.save_file(tensors, NAME)"
_NO_SIDE = {  # what users give who have tensors, and what they can do
    ".npy": "put it into a folder, and compare the folders",
    **dict.fromkeys((".pt", ".pth", ".gguf"), _CHECKPOINT),
}


class Source(NamedTuple):
    """One side: its keys and, where it holds values, the loader of one of them by name."""

    dump: Dump
    load: Loader | None = None


def compare_files(
    ref: Path,
    dut: Path,
    ask: Ask,
    *,
    alias: Path | None = None,
    partial: bool = False,
    limit: int = ELEMENTS,
) -> Tree:
    """The tree of two dumps or tensor files; see ``compare_sources``. ``alias``: a file of rules
    for other names."""
    from parity.comparison.alias import read_aliases

    began = time.monotonic()
    rules = read_aliases(alias) if alias is not None else []
    sources = _read_both(ref, dut, partial)
    tree = compare_sources(*sources, ask, rules=rules, partial=partial, limit=limit)
    tree.seconds = time.monotonic() - began
    return tree


def compare_sources(
    ref: Source,
    dut: Source,
    ask: Ask,
    *,
    rules: Sequence[Rule] = (),
    partial: bool = False,
    limit: int = ELEMENTS,
) -> Tree:
    """The tree of two sides that are at hand; with elements where both hold values.

    ``rules``: other names in the dut. ``partial``: a dump that is cut or was interrupted is
    compared as far as it goes. ``limit``: elements that are listed. A control at dump
    level is part of a green result.
    """
    from parity.comparison.alias import Aliased, apply_aliases
    from parity.comparison.alias_tensors import apply_to_tensors
    from parity.runs.engine_diff import finish_dumps

    given, load = Aliased(dut.dump), dut.load
    if rules and ref.load and dut.load:
        given, load = apply_to_tensors(rules, ref.dump, dut.dump, dut.load)
    elif rules:
        given = apply_aliases(rules, ref.dump, dut.dump)
    tree = compare_dumps(
        ref.dump, given.dut, level_asked=ask.level, partial=partial, apart=given.apart
    )
    tree.notes += given.notes
    tree = finish_dumps(tree, ref.dump, given.dut, ask, apart=given.apart)
    if tree.verdict is Verdict.DIVERGED and ref.load and load:
        _add_elements(tree, ref.load, load, limit)
    return tree


def read_source(path: Path, partial: bool = False, hash_name: str = "fnv1a64") -> Source:
    """A dump, or tensors with a loader for their values. ``hash_name``: how tensors are hashed."""
    from parity.dumps.reader import read_dump
    from parity.dumps.tensor_files import is_tensor_path, read_tensors

    if is_tensor_path(path):
        return Source(*read_tensors(path, hash_name))
    if path.suffix in _NO_SIDE and path.is_file():
        what = f"{path}: a {path.suffix} is no dump, no .npz, no .safetensors and no folder of .npy"
        raise InputError(what, _NO_SIDE[path.suffix])
    return Source(read_dump(path, partial=partial))


def _read_both(ref: Path, dut: Path, partial: bool) -> tuple[Source, Source]:
    """Both sides; two large dump files at the same time. Tensors are hashed as a dump was."""
    from parity.dumps.tensor_files import is_tensor_path

    if is_tensor_path(ref) != is_tensor_path(dut):
        written = read_source(dut if is_tensor_path(ref) else ref, partial)
        tensors = read_source(ref if is_tensor_path(ref) else dut, hash_name=written.dump.hash_name)
        return (tensors, written) if is_tensor_path(ref) else (written, tensors)
    if not (_is_large(ref) and _is_large(dut)):
        return read_source(ref, partial), read_source(dut, partial)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(read_source, dut, partial)
        return read_source(ref, partial), other.result()


def _is_large(path: Path) -> bool:
    return path.is_file() and path.stat().st_size >= _WORTH_A_THREAD


def _add_elements(tree: Tree, ref: Loader, dut: Loader, limit: int) -> None:
    from parity.comparison.elements import compare_tensors

    state = KeyState.DIFFERS
    row = next((row for row in tree.keys if (row.key, row.state) == (tree.first, state)), None)
    if row is None:
        return
    name = f"{row.segment}/{row.key}" if row.segment else row.key
    try:
        ref_tensor, dut_tensor = ref(name), dut(name)
    except KeyError:  # a recording may have kept some tensors only
        tree.notes.append(f"no elements: the values of {row.key} were not kept on both sides")
        return
    tree.elements = compare_tensors(
        row.key,
        ref_tensor.array,
        dut_tensor.array,
        limit=limit,
        dtypes=(ref_tensor.dtype, dut_tensor.dtype),
    )
