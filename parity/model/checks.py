"""What every engine refuses before it changes any state, said in one form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from parity.errors import InputError
from parity.model.config import ModelConfig


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
            f"weight {name} holds {int(bad.sum())} non-finite values, first at element {at}",
            "check how the model file was made",
        )


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


MOST_ROWS = 64  # rows in one forward: buffers are sized by this cap


def no_mark() -> InputError:
    """The error of a rollback without a mark."""
    return InputError("rollback without a mark: nothing was changed", "call mark first")
