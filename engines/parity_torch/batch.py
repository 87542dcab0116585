"""Unrelated sequences in one forward, as users batch prompts: padded on the left, with an attention
mask and position ids, then decoded a token at a time for all of them together.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from parity.errors import InputError
from parity.protocol import Plan, Step
from parity_torch.cache import cache_argument
from parity_torch.values import Row

if TYPE_CHECKING:
    from torch import nn

PAD = 0  # an id like any other: the mask says that it is not there
_NEEDED = "attention_mask"


def lacks_batch(module: nn.Module) -> str:
    """Why ``module`` cannot run unrelated sequences together; "" where it can."""
    if _NEEDED not in inspect.signature(type(module).forward).parameters:
        return f"{type(module).__name__} takes no {_NEEDED}"
    return ""


def run_batch(
    module: nn.Module,
    taps: Any,
    sequences: Sequence[Sequence[int]],
    plan: Plan | None,
    decode: int,
    kind: type[Batch] | None = None,
) -> list[list[Step]]:
    """One Step per own token of each sequence (``parity.protocol.BatchEngine.step_batch``).

    ``taps``: the module's Taps. A cache of its own is made; what the engine holds stays as it is.
    ``kind``: what makes the forwards, by default ``Batch``.
    """
    _check(module, sequences, decode)
    batch = (kind or Batch)(module, sequences, decode)
    made: list[list[Step]] = [[] for _ in sequences]
    wanted = _wanted(plan)
    for rows, ids, arguments in batch.forwards():
        asked = [row for row in rows if wanted is None or row.pos in wanted]
        with taps.watching(plan if asked else None, asked) as seen:
            found = module(ids, **arguments)
        told = {
            row: seen.step(at, _logits(found.logits[row.batch, row.index]))
            for at, row in enumerate(asked)
        }
        for row in rows:
            made[row.batch].append(told.get(row) or Step(np.empty(0, np.float32)))
    return made


def _wanted(plan: Plan | None) -> frozenset[int] | None:
    """Positions that the plan asks or changes something of; None for all."""
    if plan is None or plan.places is None or plan.replace is not None:
        return None
    keys = [*plan.tensors, *plan.trace, *(() if plan.inject is None else (plan.inject.key,))]
    return frozenset((*(pos for pos, _ in plan.places), *(key.pos for key in keys)))


def _logits(row: Any) -> np.ndarray:
    """float32[vocab], widened exactly."""
    widened: np.ndarray = row.detach().float().cpu().numpy().copy()
    return widened


def _check(module: nn.Module, sequences: Sequence[Sequence[int]], decode: int) -> None:
    if not sequences:
        raise InputError("hf: a batch of no sequences", "give one sequence or more")
    short = [at for at, sequence in enumerate(sequences) if len(sequence) <= decode]
    if short:
        raise InputError(
            f"hf: sequence {short[0]} of a batch has {len(sequences[short[0]])} tokens, of which "
            f"{decode} are decoded",
            f"give each sequence {decode + 1} tokens or more",
        )
    if decode and not cache_argument(module):
        raise InputError(f"hf: {type(module).__name__} takes no cache", "give decode 0")


class Batch:
    """The forwards of a batch: rows, ids [B, T] and the arguments beside them."""

    def __init__(self, module: nn.Module, sequences: Sequence[Sequence[int]], decode: int) -> None:
        self.module, self.sequences = module, [list(sequence) for sequence in sequences]
        self.prompts = [len(sequence) - decode for sequence in self.sequences]
        self.decode, self.width = decode, max(self.prompts)
        self.device = next(module.parameters()).device
        self.taken = inspect.signature(type(module).forward).parameters
        self.cache = self._new_cache()

    def _new_cache(self) -> dict[str, Any]:
        name = cache_argument(self.module)
        if not name or not self.decode:
            return {"use_cache": False} if "use_cache" in self.taken else {}
        from transformers import DynamicCache

        config: Any = self.module.config
        return {name: DynamicCache(config=config.get_text_config(decoder=True)), "use_cache": True}

    def forwards(self) -> Iterator[tuple[list[Row], Any, dict[str, Any]]]:
        """The prompts together, then one token of every sequence at a time."""
        pads = [self.width - prompt for prompt in self.prompts]
        starts = [
            [PAD] * pad + sequence[:prompt]
            for pad, sequence, prompt in zip(pads, self.sequences, self.prompts, strict=True)
        ]
        rows = [
            Row(pos, at, pad + pos)
            for at, (pad, prompt) in enumerate(zip(pads, self.prompts, strict=True))
            for pos in range(prompt)
        ]
        positions = [[0] * pad + list(range(self.width - pad)) for pad in pads]
        yield rows, self._tensor(starts), self.arguments(pads, self.width, positions)
        for step in range(self.decode):
            places = [prompt + step for prompt in self.prompts]
            ids = [[sequence[at]] for sequence, at in zip(self.sequences, places, strict=True)]
            rows = [Row(pos, at, 0) for at, pos in enumerate(places)]
            arguments = self.arguments(pads, self.width + step + 1, [[pos] for pos in places])
            yield rows, self._tensor(ids), arguments

    def arguments(
        self, pads: Sequence[int], width: int, positions: Sequence[Sequence[int]]
    ) -> dict[str, Any]:
        """What a forward is told beside its ids: the mask [B, width], the cache, the position ids
        [B, T]. ``pads``: padding before each sequence."""
        mask = [[0] * pad + [1] * (width - pad) for pad in pads]
        found = {_NEEDED: self._tensor(mask), **self.cache}
        if "position_ids" in self.taken:
            found["position_ids"] = self._tensor(positions)
        return found

    def _tensor(self, values: Sequence[Sequence[int]]) -> Any:
        import torch

        return torch.tensor(values, dtype=torch.int64, device=self.device)
