"""``assert_bits_equal``: arrays, named arrays or files, equal to the bit, or a readable diff.

Compared are names, dtypes, shapes and bytes: +0 is not -0, a NaN equals a NaN of the same bits.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from parity.comparison.compare import compare_dumps
from parity.comparison.files import Source, read_source
from parity.dtypes import tensor_bytes
from parity.dump import MAIN, Dump, Entry, TensorType
from parity.dumps.host_arrays import host_tensor
from parity.dumps.tensor_files import Tensor
from parity.errors import InputError
from parity.fnv import BASES, fnv1a64_array
from parity.keys import Key
from parity.status import Verdict
from parity.tree import Elements, KeyRow, KeyState, Tree

# One array, a mapping of arrays, a sequence of arrays, or the path of a dump or tensor file.
Arrays = Any
ALONE = "array"  # what a single array is called where nobody named it
SHOWN = 8  # elements, and names, that are shown
_MISSING = {KeyState.MISSING: "missing in the dut", KeyState.EXTRA: "not in the ref"}


def assert_bits_equal(ref: Arrays, dut: Arrays, *, names: Sequence[str] | None = None) -> None:
    """Assert that two arrays, or two sets of named arrays, are the same to the bit.

    ``ref``, ``dut``: each an array of any shape and strides (NumPy, PyTorch, CuPy, whatever has
    DLPack or an array interface) of real floats, integers or booleans; a mapping or a sequence of
    such arrays; or the path of a ``.npz``, a ``.safetensors``, a folder of ``.npy`` or a dump.
    ``names``: what the arrays of a sequence, or a single one, are called; of a mapping or a file
    the names to compare, all by default.

    Raises AssertionError where a name, dtype, shape or byte differs, and where nothing was
    compared; its text names the first array that differs, with its elements as hex and decimal and
    their distance in ULP. Raises InputError for what is no array or cannot be read.

    >>> import numpy
    >>> one = numpy.ones(3, numpy.float32)
    >>> assert_bits_equal(one, one.copy())
    >>> assert_bits_equal(one, numpy.nextafter(one, numpy.float32(2)), names=["attn"])
    Traceback (most recent call last):
    AssertionError: attn is not bit-equal: 3 of 3 elements differ, at most 1 ULP
      ref f32[3]
      dut f32[3]
      index  ref hex   ref value        dut hex   dut value        ULP
      [0]    3f800000  +1.00000000e+00  3f800001  +1.00000012e+00  +1
      [1]    3f800000  +1.00000000e+00  3f800001  +1.00000012e+00  +1
      [2]    3f800000  +1.00000000e+00  3f800001  +1.00000012e+00  +1
    """
    __tracebackhide__ = True
    text = bits_difference(ref, dut, names=names)
    if text:
        raise AssertionError(text)


def bits_difference(ref: Arrays, dut: Arrays, *, names: Sequence[str] | None = None) -> str:
    """What ``assert_bits_equal`` says of the two; empty where they are the same."""
    sides = _source("ref", ref, names, ""), _source("dut", dut, names, "")
    hashes = {side.dump.hash_name for side in sides}
    if len(hashes) > 1:  # a dump says how it was hashed, arrays do not
        hashed = sorted(hashes - {"fnv1a64"})[0]
        sides = _source("ref", ref, names, hashed), _source("dut", dut, names, hashed)
    _require_known(names, *sides)
    tree = compare_dumps(sides[0].dump, sides[1].dump)
    if tree.verdict is not Verdict.SAME:
        return difference_text(tree, first_elements(tree, *sides))
    return _collision(*sides)


def _require_known(names: Sequence[str] | None, *sides: Source) -> None:
    """A name that neither side has is misspelt: left out, it would pass."""
    known = {entry.key.tag for side in sides for entry in side.dump.entries}
    unknown = [name for name in names or () if name not in known]
    if unknown:
        raise InputError(
            f"no array {unknown[0]!r} on either side",
            f"names: {', '.join(sorted(known)) or 'none'}",
        )


def _collision(ref: Source, dut: Source) -> str:
    """Arrays at hand are compared by their bytes too: a digest of 64 bits may lie."""
    if ref.load is None or dut.load is None:
        return ""
    for entry in ref.dump.entries:
        one, other = (tensor_bytes(side.load(entry.key.tag).array) for side in (ref, dut))  # type: ignore[misc]
        if one != other:
            return f"{entry.key} is not bit-equal: other bytes with the digest {entry.digest:016x}"
    return ""


def first_elements(tree: Tree, ref: Source, dut: Source) -> Elements | None:
    """The elements of the first key that differs, where both sides hold its values."""
    from parity.comparison.elements import compare_tensors

    row = _first(tree)
    if row is None or row.state != KeyState.DIFFERS or ref.load is None or dut.load is None:
        return None
    one, other = ref.load(row.key), dut.load(row.key)
    dtypes = (one.dtype, other.dtype)
    return compare_tensors(row.key, one.array, other.array, limit=SHOWN, dtypes=dtypes)


def difference_text(tree: Tree, elements: Elements | None) -> str:
    """A tree that is not green as text: what differs first, its elements, and the other names."""
    row = _first(tree)
    if row is None:
        return f"not compared: {tree.reason}" if tree.reason else "nothing was compared"
    return "\n".join([*_first_lines(row, elements), *_others(tree, row)])


def _first(tree: Tree) -> KeyRow | None:
    rows = (row for row in tree.keys if row.key == tree.first)
    return next((row for row in rows if row.state != KeyState.SAME), None)


# --- the two sides --------------------------------------------------------------------------------


def _source(role: str, side: Arrays, names: Sequence[str] | None, hash_name: str) -> Source:
    """``hash_name``: of arrays; of a file its own."""
    if isinstance(names, str):
        raise InputError(f"names {names!r}: a text, not names", f"write names=[{names!r}]")
    if isinstance(side, str | os.PathLike):
        return _chosen(read_source(Path(side), hash_name=hash_name or "fnv1a64"), names)
    tensors = named_tensors(role, side, names)
    entries = [_entry(name, tensor, hash_name or "fnv1a64") for name, tensor in tensors.items()]
    header = {"hash": hash_name} if hash_name else {}
    return Source(Dump(header, {MAIN: entries}, role), tensors.__getitem__)


def named_tensors(role: str, side: Arrays, names: Sequence[str] | None = None) -> dict[str, Tensor]:
    """Arrays at hand by name; ``side`` and ``names`` as ``assert_bits_equal`` takes them, no path.

    ``role`` names the side in errors. Raises InputError for a name that no dump can hold and for
    what is no array.
    """
    found = {}
    for name, value in _named(role, side, names):
        if not isinstance(name, str) or not name or not name.isprintable():
            raise InputError(f"{role}: bad name {name!r}", "name it in printable characters")
        try:
            found[name] = value if isinstance(value, Tensor) else host_tensor(value)
        except InputError as error:
            raise InputError(f"{role} {name}: {error.message}", error.next_step) from error
    return found


def _named(role: str, side: Any, names: Sequence[str] | None) -> Iterable[tuple[Any, Any]]:
    if isinstance(side, Mapping):
        wanted = side if names is None else [name for name in names if name in side]
        return [(name, side[name]) for name in wanted]
    single = isinstance(side, Tensor) or not isinstance(side, list | tuple)
    values = [side] if single else list(side)
    if names is None:
        names = [ALONE] if single else [str(number) for number in range(len(values))]
    if len(names) != len(values) or len(set(names)) != len(names):
        raise InputError(
            f"{role}: {len(values)} arrays and the names {', '.join(names)}",
            "give each array one name of its own",
        )
    return zip(names, values, strict=True)


def _chosen(source: Source, names: Sequence[str] | None) -> Source:
    if names is None:
        return source
    wanted = set(names)
    segments = {
        name: [entry for entry in entries if entry.key.tag in wanted]
        for name, entries in source.dump.segments.items()
    }
    return Source(Dump(source.dump.header, segments, source.dump.source), source.load)


def _entry(name: str, tensor: Tensor, hash_name: str) -> Entry:
    """NaN and infinities are bits like others: an array is no run that they end."""
    kind = TensorType(tensor.dtype, tensor.array.shape)
    return Entry(Key.of_name(name), fnv1a64_array(tensor.array, BASES[hash_name]), kind)


# --- text -----------------------------------------------------------------------------------------


def _first_lines(row: KeyRow, elements: Elements | None) -> list[str]:
    head = f"{row.key} is not bit-equal"
    if row.state in _MISSING:
        return [f"{head}: it is {_MISSING[row.state]}"]
    if elements is None:
        return [head, f"  ref {row.ref}", f"  dut {row.dut}"]
    types = [f"  ref {elements.ref_type}", f"  dut {elements.dut_type}"]
    return [f"{head}: {_sentence(elements)}", *types, *_table(elements)]


def _sentence(elements: Elements) -> str:
    """``3 of 128 elements differ, at most 2 ULP``; where types differ what was compared."""
    parts = [elements.note.partition(":")[0]] if elements.note else []
    if elements.total:
        parts.append(f"{elements.differ:,} of {elements.total:,} elements differ")
    if elements.max_ulp is not None:
        plural = "s" if elements.unit == "step" and elements.max_ulp != 1 else ""
        parts.append(f"at most {elements.max_ulp:,} {elements.unit}{plural}")
    return ", ".join(parts)


def _table(elements: Elements) -> list[str]:
    if not elements.rows:
        return []
    heads = ["index", "ref hex", "ref value", "dut hex", "dut value", elements.unit]
    rows = [
        [
            f"[{', '.join(map(str, row.index))}]",
            *(row.ref_hex, row.ref_value, row.dut_hex, row.dut_value),
            row.kind if row.ulp is None else f"{row.ulp:+,}",
        ]
        for row in elements.rows
    ]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    lines = [
        "  " + "  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True))
        for line in (heads, *rows)
    ]
    left = elements.differ - len(rows)
    return [*(line.rstrip() for line in lines), *([f"  and {left:,} more"] if left else [])]


def _others(tree: Tree, first: KeyRow) -> list[str]:
    """How many are equal, and the names that differ besides the first one."""
    counts = tree.counts
    if counts.total == 1:
        return []
    unequal = counts.total - counts.same
    head = f"{counts.same:,} of {counts.total:,} are equal"
    rows = [row for row in tree.keys if row.state != KeyState.SAME and row is not first][:SHOWN]
    listed = [f"  {row.key}: {_MISSING.get(row.state, row.state)}" for row in rows]
    left = unequal - 1 - len(listed)
    more = [f"  and {left:,} more"] if left else []
    return [f"{head}; beside {first.key}:" if listed else head, *listed, *more]
