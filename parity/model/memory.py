"""What a model needs, and what this machine has: refused before anything is read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

from parity.errors import NotRunError
from parity.model.checks import wanted_tensors
from parity.model.config import DEFAULT_PRESET, ModelConfig
from parity.model.model import Model, synthetic

ITEM_BYTES = {"f32": 4, "f16": 2, "u8": 1}  # of the types that weights have
HOST, DEVICE = "host memory", "device memory"
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Room:
    """Where an engine holds a model: ``place``, and the bytes free there (None: not known).

    ``item``: bytes that a weight takes there which the model holds as f32. ``smaller``: the
    setting of this engine that halves them, as it is typed; "" for none.
    """

    place: str
    free: int | None
    item: int = 4
    smaller: str = ""


def weight_bytes(model: Model) -> int:
    """Bytes that a model's weights take on one side, known from their names: none is made.

    A model that no contract names tells them itself (``weight_bytes``).
    """
    told: int | None = getattr(model, "weight_bytes", None)
    if told is not None:
        return told
    wanted = wanted_tensors(model.config, frozenset(model.names()))
    return sum(ITEM_BYTES[kind.dtype] * prod(kind.shape) for kind in wanted.values())


def state_bytes(config: ModelConfig, positions: int) -> int:
    """Bytes of K and V rows with their scales, S and hist (contract 1.6, 1.8, 3.2)."""
    full = config.layers - sum(map(config.is_gdn, range(config.layers)))
    head = config.head_dim + 4 if config.kv == "int8" else 4 * config.head_dim
    return 2 * full * positions * config.n_kv * head + config.recurrent_bytes


def check_room(engine: str, model: Model, positions: int, room: Room) -> None:
    """NotRunError, with the numbers, when the model does not fit into what is free."""
    check_rooms([(engine, room)], model, positions)


def check_rooms(rooms: Sequence[tuple[str, Room]], model: Model, positions: int) -> None:
    """NotRunError, with the numbers, where engines that are open at once have no room for a copy
    of the model each. ``rooms``: by the engine's name; engines in one place share what is free."""
    weights, state = weight_bytes(model), state_bytes(model.config, positions)
    for place in dict.fromkeys(room.place for _, room in rooms):
        here = [(name, room) for name, room in rooms if room.place == place]
        known = [room.free for _, room in here if room.free is not None]
        each = [_needed((weights, state), room) for _, room in here]
        if known and sum(map(sum, each)) >= min(known):
            raise _too_large(here, model, each, min(known))


def _needed(sizes: tuple[int, int], room: Room) -> tuple[int, int]:
    """Bytes of weights and of the state where an engine holds an f32 as ``room.item`` bytes."""
    weights, state = sizes
    return weights * room.item // 4, state * room.item // 4


def _too_large(
    rooms: Sequence[tuple[str, Room]], model: Model, sizes: Sequence[tuple[int, int]], free: int
) -> NotRunError:
    """``sizes``: bytes of weights and of the state, by room."""
    names, place = [name for name, _ in rooms], rooms[0][1].place
    each = [sum(one) for one in sizes]
    parts = f"{size_text(sizes[0][0])} of weights, {size_text(sizes[0][1])} of KV cache and state"
    total = size_text(each[0])
    if len(names) > 1:
        total = f"{len(names)} x {total} = {size_text(sum(each))}"
        if len(set(each)) > 1:
            total = f"{' + '.join(map(size_text, each))} = {size_text(sum(each))}"
    small = synthetic(DEFAULT_PRESET, 0)
    hint = f"the preset {DEFAULT_PRESET} needs {size_text(weight_bytes(small))}"
    smaller = next((room.smaller for _, room in rooms if room.smaller), "")
    halved = sum(
        size // 2 if room.smaller else size for size, (_, room) in zip(each, rooms, strict=True)
    )
    if smaller and halved < free:
        hint = f"{smaller} needs {size_text(halved)}"
    elif len(names) > 1 and max(each) < free:
        hint = f"one side fits: parity dump each, then parity compare; or {hint}"
    return NotRunError(
        f"{' and '.join(names)}: {called(model)} needs {total} of {place} ({parts}), "
        f"{size_text(free)} are free",
        hint,
    )


def called(model: Model) -> str:
    """A preset by its name, which no seed changes the size of; a file by its label."""
    return model.config.name if getattr(model, "source", None) is None else model.label


def free_bytes() -> int | None:
    """Memory of this machine that can be taken, where the system tells: what files occupy in its
    cache counts as free, and a container's limit counts as its memory."""
    known = [found for found in (_available(), _below_limit()) if found is not None]
    return min(known, default=None)


def _available() -> int | None:
    try:
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None


def _below_limit() -> int | None:
    """Bytes below the limit of this process's cgroup, what files occupy counted as free."""
    try:
        limit = int((_CGROUP / "memory.max").read_text())
        used = int((_CGROUP / "memory.current").read_text())
        told = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
        return max(0, limit - used + int(told.get("inactive_file", 0)))
    except (ValueError, OSError):  # no limit, or no cgroup of version 2
        return None


def size_text(count: int) -> str:
    """``17.2 GB`` or ``1.4 MB``."""
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"
