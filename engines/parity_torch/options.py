"""The options of ``hf:MODEL[,name=value]...``, checked before anything is imported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from parity.errors import InputError
from parity.model.checks import check_options

# Name of an option: the values it takes; () for a number.
KNOWN: dict[str, tuple[str, ...]] = {
    "dtype": ("f32", "bf16", "f16"),
    "device": ("cpu", "cuda"),
    "attn": ("sdpa", "eager"),
    "invariant": ("off", "on"),
    "prefill": ("whole", "steps"),
    "threads": (),
}
_MOST_THREADS = 4096


@dataclass(frozen=True)
class Options:
    """How a model is run. ``attn``: "" for the library's own choice. ``prefill``: the prompt in one
    forward, or token by token. ``threads``: of torch's CPU ops, 0 for torch's own choice."""

    dtype: str = "f32"
    device: str = "cpu"
    attn: str = ""
    invariant: bool = False
    prefill: str = "whole"
    threads: int = 0

    @property
    def item(self) -> int:
        """Bytes of one weight."""
        return 4 if self.dtype == "f32" else 2


def read_options(given: Mapping[str, str]) -> Options:
    """Options as typed; InputError, naming what is known, for any other name or value."""
    check_options("hf", given, tuple(KNOWN))
    values = {name: _checked(name, value) for name, value in given.items() if name != "threads"}
    return Options(
        dtype=values.get("dtype", "f32"),
        device=values.get("device", "cpu"),
        attn=values.get("attn", ""),
        invariant=values.get("invariant", "off") == "on",
        prefill=values.get("prefill", "whole"),
        threads=_threads(given.get("threads", "")),
    )


def _checked(name: str, value: str) -> str:
    if value not in KNOWN[name]:
        raise InputError(
            f"hf: {name}={value} is not known", f"{name} is one of {', '.join(KNOWN[name])}"
        )
    return value


def _threads(text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and 0 < int(text[:9]) <= _MOST_THREADS):
        raise InputError(f"hf: threads={text} is no number of threads", "write threads=1")
    return int(text)
