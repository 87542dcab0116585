"""What every engine refuses before it changes any state, said in one form."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from parity.dump import TensorType
from parity.errors import InputError
from parity.model.config import ModelConfig
from parity.model.model import BLOCK, WeightShape, weight_shapes
from parity.protocol import ELEMENTARY

STORED = {"float32": "f32", "uint16": "f16", "uint8": "u8"}  # as a model's tensors are named
REMAKE = "check how the model file was made"


def check_finite(name: str, array: np.ndarray) -> None:
    """Refuse non-finite weights: float32 values, or f16 scales given as uint16 bits."""
    if array.dtype == np.float32:
        bad = ~np.isfinite(array)
    elif array.dtype == np.uint16:
        bad = (array & 0x7C00) == 0x7C00
    else:
        return
    if bad.any():
        at = int(np.flatnonzero(bad)[0])
        raise InputError(
            f"weight {name} holds {int(bad.sum())} non-finite values, first at element {at}", REMAKE
        )


def wanted_tensors(config: ModelConfig, names: Collection[str]) -> dict[str, TensorType]:
    """dtype and shape of every tensor an engine reads: ops take sizes from ``config`` alone.

    ``names``: the model's own; they tell how each matrix is held, f32 or Q4_0 (contract 1.0).
    Raises InputError for a weight that is missing.
    """
    wanted: dict[str, TensorType] = {}
    for name, weight in weight_shapes(config).items():
        if weight.matrix and name not in names and f"{name}.d" in names:
            wanted |= _q4_types(config, name, weight)
        else:
            wanted[name] = TensorType("f32", weight.shape)
    missing = [name for name in wanted if name not in names]
    if missing:
        raise InputError(f"weight {missing[0]} of {config.name} is missing", REMAKE)
    return wanted


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
