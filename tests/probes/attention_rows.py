"""Attention of M rows against M single rows, on the ops alone: both storages, any backend.

Appending a row is part of it: M rows go into the cache (contract 1.6 for int8), then each query
row m reads rows 0 .. base + m (contract 1.8).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from parity_cpu.ops.attention_f32 import attention_f32
from parity_cpu.ops.attention_int8 import attention_int8
from parity_cpu.ops.quant8 import quant8
from parity_cuda.backend import Backend
from parity_cuda.ops import Ops, scratch_width

HEADS, KV, WIDTH = 4, 2, 32
SCALE = np.float32(1 / np.sqrt(WIDTH))
FORMS = ("int8", "f32")
Array = np.ndarray[Any, np.dtype[Any]]
Cache = dict[str, Any]


class Device(Protocol):
    """Where the ops run."""

    def send(self, array: Array) -> Any:
        """A buffer with a copy."""
        ...

    def fetch(self, buffer: Any) -> Array:
        """A copy of a buffer."""
        ...

    def append(self, cache: Cache, at: int, k: Array, v: Array) -> None:
        """Write rows at position ``at``; k, v f32[M, KV, WIDTH]."""
        ...

    def attend(self, cache: Cache, q: Array, pos: int) -> Array:
        """Output f32[M, HEADS, WIDTH] of queries at pos, pos + 1, ..."""
        ...


class OnCpu:
    """The Numba ops."""

    def send(self, array: Array) -> Array:
        return array.copy()

    def fetch(self, buffer: Array) -> Array:
        return buffer.copy()

    def append(self, cache: Cache, at: int, k: Array, v: Array) -> None:
        for part, x in (("k", k), ("v", v)):
            rows = slice(at, at + len(x))
            if "ks" in cache:
                quant8(cache[part][rows], cache[f"{part}s"][rows], x, 0)
            else:
                cache[part][rows] = x

    def attend(self, cache: Cache, q: Array, pos: int) -> Array:
        out = np.full(q.shape, np.nan, np.float32)
        if "ks" not in cache:
            attention_f32(out, q, cache["k"], cache["v"], SCALE, pos, 0)
            return out
        q8, scale = np.empty(q.shape, np.int8), np.empty(q.shape[:2], np.float32)
        quant8(q8, scale, q, 0)
        cached = (cache["k"], cache["ks"], cache["v"], cache["vs"])
        attention_int8(out, q8, scale, *cached, SCALE, pos, 0)
        return out


class OnDevice:
    """The kernels on a backend."""

    def __init__(self, backend: Backend) -> None:
        self.backend, self.ops = backend, Ops(backend)

    def send(self, array: Array) -> Any:
        return self.backend.upload(array)

    def fetch(self, buffer: Any) -> Array:
        return self.backend.download(buffer)

    def append(self, cache: Cache, at: int, k: Array, v: Array) -> None:
        for part, x in (("k", k), ("v", v)):
            rows = slice(at, at + len(x))
            given = self.send(x)
            if "ks" in cache:
                self.ops.quant8(cache[part][rows], cache[f"{part}s"][rows], given, 0)
            else:
                self.backend.copy(cache[part][rows], given)

    def attend(self, cache: Cache, q: Array, pos: int) -> Array:
        out = self.send(np.full(q.shape, np.nan, np.float32))
        given, at = self.send(q), self.send(np.array([pos], np.int32))
        room = (*q.shape[:2], scratch_width(pos + len(q)))
        scratch = self.send(np.full(room, np.nan, np.float32))
        if "ks" not in cache:
            self.ops.attention_f32(out, given, cache["k"], cache["v"], SCALE, at, 0, scratch)
            return self.fetch(out)
        q8 = self.backend.empty(q.shape, np.int8)
        scale = self.backend.empty(q.shape[:2], np.float32)
        self.ops.quant8(q8, scale, given, 0)
        cached = (cache["k"], cache["ks"], cache["v"], cache["vs"])
        self.ops.attention_int8(out, q8, scale, *cached, SCALE, at, 0, scratch)
        return self.fetch(out)


@dataclass(frozen=True)
class Given:
    """Rows before the block, then M new ones, all f32; and what the unused rows hold."""

    q: Array
    k: Array
    v: Array
    base: int
    room: int
    fill: int = 0xFF

    @property
    def rows(self) -> int:
        """M."""
        return len(self.q)


def draw(rows: int, base: int, room: int, *, fill: int = 0xFF) -> Given:
    """Seeded by sizes alone, so that a block's rows do not change with ``fill``."""
    rng = np.random.default_rng([rows, base])
    q = rng.standard_normal((rows, HEADS, WIDTH)).astype(np.float32)
    k, v = rng.standard_normal((2, base + rows, KV, WIDTH)).astype(np.float32)
    return Given(q, k, v, base, room, fill)


def cache_of(device: Device, form: str, given: Given) -> Cache:
    """A cache of ``room`` rows that holds the rows before the block; the rest is garbage."""
    shape = (given.room, KV, WIDTH)
    kinds: Mapping[str, tuple[tuple[int, ...], Any]] = {
        "k": (shape, np.int8 if form == "int8" else np.float32),
        "v": (shape, np.int8 if form == "int8" else np.float32),
        **({part: (shape[:2], np.float32) for part in ("ks", "vs")} if form == "int8" else {}),
    }
    cache = {}
    for part, (size, kind) in kinds.items():
        count = int(np.prod(size)) * np.dtype(kind).itemsize
        cache[part] = device.send(np.full(count, given.fill, np.uint8).view(kind).reshape(size))
    if given.base:
        device.append(cache, 0, given.k[: given.base], given.v[: given.base])
    return cache


def in_one(device: Device, cache: Cache, given: Given) -> Array:
    """The block as M rows."""
    device.append(cache, given.base, given.k[given.base :], given.v[given.base :])
    return device.attend(cache, given.q, given.base)


def one_by_one(device: Device, cache: Cache, given: Given) -> Array:
    """The block as M single rows."""
    outputs = []
    for m in range(given.rows):
        at = given.base + m
        device.append(cache, at, given.k[at : at + 1], given.v[at : at + 1])
        outputs.append(device.attend(cache, given.q[m : m + 1], at))
    return np.concatenate(outputs)


@dataclass
class Row:
    """One line of the table; every problem found, or none."""

    form: str
    rows: int
    base: int
    problems: list[str] = field(default_factory=list)
    control: str = ""

    def __str__(self) -> str:
        found = ", ".join(self.problems) or "equal"
        return f"{self.form:4}  {self.rows:2}  {self.base:4}  {found:40}  {self.control}"


def check(device: Device, form: str, rows: int, base: int, room: int) -> Row:
    """M rows against single ones: whole buffers, outputs, appended rows, and the control."""
    given, found = draw(rows, base, room), Row(form, rows, base)
    single, many = cache_of(device, form, given), cache_of(device, form, given)
    ref, dut = one_by_one(device, single, given), in_one(device, many, given)
    for part, buffer in single.items():
        if device.fetch(buffer).tobytes() != device.fetch(many[part]).tobytes():
            found.problems.append(f"{part} buffers differ")
    for m in range(rows):
        if ref[m].tobytes() != dut[m].tobytes():
            found.problems.append(f"output {m} differs")
    if not np.isfinite(dut).all():
        found.problems.append("not finite")
    found.problems += _appended(device, form, many, given)
    found.control = _control(device, form, given)
    if found.control.startswith("equal"):
        found.problems.append("control did not differ")
    return found


def _appended(device: Device, form: str, cache: Cache, given: Given) -> list[str]:
    """The block's rows in the cache are its input: as given, or quantised as contract 1.6 says."""
    found, last = [], given.base + given.rows
    for part, x in (("k", given.k[given.base :]), ("v", given.v[given.base :])):
        values = device.fetch(cache[part])
        wanted, scale = (x, None) if form == "f32" else quantised(x)
        if values[given.base : last].tobytes() != wanted.tobytes():
            found.append(f"appended {part} is not its input")
        if scale is not None:
            scales = device.fetch(cache[f"{part}s"])[given.base : last]
            found += [f"scale of {part} is not its input's"] * (scales.tobytes() != scale.tobytes())
        if set(values[last:].reshape(-1).view(np.uint8)) - {given.fill}:
            found.append(f"{part} written past the block")
    return found


def quantised(x: Array) -> tuple[Array, Array]:
    """Contract 1.6 in whole-array operations: int8 rows and their scales."""
    scale = np.abs(x).max(axis=-1) / np.float32(127)
    q = np.clip(np.rint(x / scale[..., None]), -127, 127).astype(np.int8)
    return q, scale.astype(np.float32)


def _control(device: Device, form: str, given: Given) -> str:
    """With all queries equal, rows 0 and M - 1 still see other keys: they must differ."""
    if given.rows == 1:
        return "one row: nothing to tell apart"
    same = Given(np.repeat(given.q[:1], given.rows, 0), given.k, given.v, given.base, given.room)
    out = in_one(device, cache_of(device, form, same), same)
    differ = "differ" if out[0].tobytes() != out[-1].tobytes() else "equal"
    note = ", but row 0 sees one key: no query matters there" if given.base == 0 else ""
    return f"{differ}{note}"
