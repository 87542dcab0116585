"""What every engine refuses before it changes any state, said in one form."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from parity.dump import TensorType
from parity.errors import InputError, ParityBug
from parity.model.config import ModelConfig
from parity.model.model import BLOCK, WeightShape, weight_shapes
from parity.protocol import ELEMENTARY

STORED = {"float32": "f32", "uint16": "f16", "uint8": "u8"}  # as a model's tensors are named
REMAKE = "check how the model file was made"
_PIECE = 1 << 16  # elements looked at together


def check_finite(name: str, array: np.ndarray) -> None:
    """Refuse non-finite weights: float32 values, or f16 scales given as uint16 bits."""
    if array.dtype not in (np.float32, np.uint16):
        return
    # In pieces that stay in the processor's cache: one pass over memory.
    flat, bad, first = array.reshape(-1), 0, -1
    for start in range(0, flat.size, _PIECE):
        found = _nonfinite(flat[start : start + _PIECE])
        if found.any():
            bad += int(found.sum())
            first = start + int(np.flatnonzero(found)[0]) if first < 0 else first
    if bad:
        raise InputError(
            f"weight {name} holds {bad} non-finite values, first at element {first}", REMAKE
        )


def _nonfinite(part: np.ndarray) -> np.ndarray:
    found: np.ndarray = (part & 0x7C00) == 0x7C00 if part.dtype == np.uint16 else ~np.isfinite(part)
    return found


def wanted_tensors(config: ModelConfig, names: Collection[str]) -> dict[str, TensorType]:
    """dtype and shape of every tensor an engine reads: ops take sizes from ``config`` alone.

    ``names``: the model's own; they tell how each matrix is held, f32 or Q4_0 (contract 1.0), and
    whether a Gated DeltaNet layer stores nA itself (3.2). Raises InputError for a weight that is
    missing, and where the KV cache is not the one that these matrices ask for.
    """
    wanted: dict[str, TensorType] = {}
    for plain, weight in weight_shapes(config).items():
        name = _rates_name(plain, names)
        if weight.matrix and name not in names and f"{name}.d" in names:
            wanted |= _q4_types(config, name, weight)
        else:
            wanted[name] = TensorType("f32", weight.shape)
    missing = [name for name in wanted if name not in names]
    if missing:
        raise InputError(f"weight {missing[0]} of {config.name} is missing", REMAKE)
    if config.weights == "file" and config.kv != (rule := stored_kv(config.family, names)):
        raise ParityBug(f"{config.name}: KV storage {config.kv}, its matrices ask for {rule}")
    return wanted


def stored_kv(family: str, names: Collection[str]) -> str:
    """Storage of K and V of a model with tensors of these names (contract 1.0)."""
    q4 = any(name.endswith(".qs") for name in names)
    return "int8" if q4 and family != "hybrid" else "f32"


def _rates_name(name: str, names: Collection[str]) -> str:
    """``name``, or that of nA where the model holds it in the place of this A_log."""
    layer, _, weight = name.rpartition(".")
    stored = f"{layer}.rates"
    if weight != "a_log" or stored not in names:
        return name
    if name in names:
        raise InputError(f"both {name} and {stored} are there", REMAKE)
    return stored


def _q4_types(config: ModelConfig, name: str, weight: WeightShape) -> dict[str, TensorType]:
    """A block of 32 weights is one f16 scale and 16 bytes."""
    *rows, columns = weight.shape
    if columns % BLOCK:
        raise InputError(
            f"weight {name} of {config.name} is held as Q4_0, but its rows of {columns} are no "
            f"multiple of {BLOCK}",
            "store it as f32",
        )
    blocks = columns // BLOCK
    return {
        f"{name}.d": TensorType("f16", (*rows, blocks)),
        f"{name}.qs": TensorType("u8", (*rows, blocks * 16)),
    }


def check_shape(name: str, array: np.ndarray, wanted: TensorType | None) -> None:
    """Refuse a tensor of another dtype or shape than ``wanted`` (None: nothing reads it)."""
    found = TensorType(STORED.get(array.dtype.name, array.dtype.name), array.shape)
    if wanted is not None and found != wanted:
        raise InputError(f"weight {name} is {found}, the model needs {wanted}", REMAKE)


def check_tokens(config: ModelConfig, tokens: Sequence[int], pos: int, positions: int) -> None:
    """Refuse token ids outside the vocabulary and positions past the KV cache."""
    for offset, token in enumerate(tokens):
        if not 0 <= token < config.vocab:
            raise InputError(
                f"token {token} at position {pos + offset} is outside the vocabulary of "
                f"{config.name} ({config.vocab:,} ids)",
                f"give ids of 0 to {config.vocab - 1}",
            )
    if pos + len(tokens) > positions:
        raise InputError(
            f"position {pos + len(tokens) - 1} is past the KV cache of {config.name} "
            f"({positions:,} positions)",
            "give a shorter prompt or a smaller --n",
        )


def check_options(engine: str, given: Mapping[str, str], known: Sequence[str]) -> None:
    """Refuse options of a spec (``@name=value``) that the engine does not have."""
    unknown = sorted(set(given) - set(known))
    if unknown:
        offered = ", ".join(f"@{name}" for name in known) or "none"
        raise InputError(f"{engine} has no option @{unknown[0]}", f"options: {offered}")


def check_rows(tokens: Sequence[int]) -> None:
    """Refuse a forward of no rows, or of more than ``MOST_ROWS``."""
    if not 1 <= len(tokens) <= MOST_ROWS:
        raise InputError(
            f"{len(tokens)} rows in one forward: 1 to {MOST_ROWS} are possible",
            "give a smaller --m",
        )


def check_function(engine: str, function: str) -> None:
    """Refuse an elementary function that is not of ELEMENTARY."""
    if function not in ELEMENTARY:
        raise InputError(
            f"{engine} has no elementary function {function!r}", f"known: {', '.join(ELEMENTARY)}"
        )


MOST_ROWS = 64  # rows in one forward: buffers are sized by this cap


def no_mark() -> InputError:
    """The error of a rollback without a mark."""
    return InputError("rollback without a mark: nothing was changed", "call mark first")
