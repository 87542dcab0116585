"""Room for a model, and what is said when memory ends while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING

from parity.errors import NotRunError
from parity.model.memory import DEVICE, HOST, Room, free_bytes, size_text
from parity_torch.options import Options

if TYPE_CHECKING:
    from torch import nn

_HOST_WORDS = ("can't allocate memory", "not enough memory")  # torch's CPU allocator


def room_of(options: Options) -> Room:
    """Where a model lies, what is free there, and the dtype that would halve it."""
    smaller = "dtype=bf16" if options.item == 4 else ""
    if options.device == "cpu":
        return Room(HOST, free_bytes(), options.item, smaller)
    import torch

    free, _ = torch.cuda.mem_get_info()
    return Room(DEVICE, free, options.item, smaller)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that host or device memory has ended."""
    import torch

    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in _HOST_WORDS)


@contextmanager
def refused(options: Options, what: str, module: nn.Module | None = None) -> Iterator[None]:
    """Out of memory as NotRunError: what was asked for, what is free, what would fit."""
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        free = room_of(options).free
        there = "not known" if free is None else size_text(free)
        place = HOST if options.device == "cpu" else DEVICE
        raise NotRunError(
            f"hf: {what}: out of {place}, {there} free", _would_fit(options, module)
        ) from error


def _would_fit(options: Options, module: nn.Module | None) -> str:
    hints = ["fewer tokens at once (prefill=steps, a smaller --m)"]
    if options.item == 4:
        held = "" if module is None else f": {size_text(held_bytes(module) // 2)} of weights"
        hints.insert(0, f"dtype=bf16{held}")
    if options.device == "cuda":
        hints.append("device=cpu")
    return f"what takes less: {'; '.join(hints)}"


def held_bytes(module: nn.Module) -> int:
    """Bytes of all parameters."""
    return sum(prod(one.shape) * one.element_size() for one in module.parameters())
