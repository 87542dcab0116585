"""A small engine that really batches, and faults in it: ``tests.red.batch_faults:Together``.

``Together@fault=NAME`` plants one of FAULTS. All sequences run in arrays [B, T, ...], padded on the
left, with a mask and position ids of their own; each sum is taken row by row in one order, so that
without a fault no row depends on its batch. ``Loops`` runs one sequence after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from zlib import crc32

import numpy as np

from parity.dump import Entry, TensorType
from parity.errors import InputError
from parity.inject import move_element
from parity.keys import Key
from parity.protocol import EngineSettings, Plan, Step

WIDTH, LAYERS = 8, 2
PAD = 0
FAULTS = (
    *("", "no mask", "positions", "swapped", "leak", "by size", "flaky", "dead tap", "late"),
    *("untapped", "lost", "logits", "alone", "once", "nan"),
)
F = np.float32


class Together:
    """The engine. Fields: nrm, k, attn, x of two layers, then final_normed and logits."""

    name: ClassVar[str] = "together"
    version: ClassVar[str] = "1"
    protocol: ClassVar[int] = 2
    tiers: ClassVar[tuple[str, ...]] = ("toy",)
    variants: ClassVar[tuple[str, ...]] = ()
    options: ClassVar[tuple[str, ...]] = ("fault", "invariant")
    capabilities: ClassVar[frozenset[str]] = frozenset(
        {"batch", "inject", "capture", "trace", "counters"}
    )

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self.fault = settings.options.get("fault", "")
        if self.fault not in FAULTS:
            raise InputError(f"together: no fault {self.fault!r}", f"faults: {', '.join(FAULTS)}")
        self.runs = 0
        self.calls: Counter[str] = Counter()

    def describe(self) -> Mapping[str, str]:
        options = self.settings.options
        return {"invariant": "the toy's own"} if options.get("invariant") == "on" else {}

    def load(self, model: Any, positions: int) -> None:
        self.config, self.room, self.fed = model.config, positions, list[int]()
        draw = np.random.Generator(np.random.PCG64(11))
        count = min(self.config.vocab, 32)
        self.embed = draw.standard_normal((self.config.ids, WIDTH), F)
        self.rope = draw.standard_normal((positions, WIDTH), F)
        self.head = draw.standard_normal((count, WIDTH), F)

    def weights(self) -> dict[str, Any]:
        return {}

    def reset(self) -> None:
        self.fed = []

    def prefill(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        return [self.step(token, plan) for token in tokens]

    def step(self, token: int, plan: Plan | None = None) -> Step:
        self.fed.append(token)
        return self._together([self.fed], plan)[0][-1]

    def counters(self) -> Mapping[str, int]:
        return dict(self.calls)

    # --- a batch ----------------------------------------------------------------------------------

    def step_batch(
        self, sequences: Sequence[Sequence[int]], plan: Plan | None = None, decode: int = 0
    ) -> list[list[Step]]:
        if min(map(len, sequences)) <= decode:
            raise InputError("nothing is left to decode from")
        self.reset()
        self.runs += 1
        steps = self._together(sequences, plan)
        if self.fault == "swapped" and len(steps) > 1:
            steps[0], steps[1] = steps[1], steps[0]
        return steps[:-1] if self.fault == "lost" and len(steps) > 1 else steps

    def _together(self, sequences: Sequence[Sequence[int]], plan: Plan | None) -> list[list[Step]]:
        forward = _Forward(self, sequences, plan)
        forward.run()
        return forward.steps


class _Forward:
    """One forward of [B, T] tokens."""

    def __init__(
        self, engine: Together, sequences: Sequence[Sequence[int]], plan: Plan | None
    ) -> None:
        self.engine, self.plan, self.fault = engine, plan, engine.fault
        self.lengths = [len(one) for one in sequences]
        self.b, self.t = len(sequences), max(self.lengths)
        self.pads = [self.t - length for length in self.lengths]
        padded = [[PAD] * pad + list(one) for pad, one in zip(self.pads, sequences, strict=True)]
        self.ids = np.array(padded)
        self.mask = np.array([[0] * pad + [1] * (self.t - pad) for pad in self.pads], F)
        places = [[0] * pad + list(range(self.t - pad)) for pad in self.pads]
        self.places = np.array(places)
        if self.fault == "positions":
            self.places = np.broadcast_to(np.arange(self.t), self.places.shape)
        self.entries: dict[tuple[int, int], list[Entry]] = {}
        self.tensors: dict[Key, np.ndarray] = {}

    def run(self) -> None:
        engine = self.engine
        engine.calls.update(embed=1, norm=LAYERS + 1, attention=LAYERS, head=1)
        x = (engine.embed[self.ids] + engine.rope[self.places]).astype(F)
        for layer in range(LAYERS):
            nrm = self._offer(layer, "nrm", self._norm(x))
            k = self._offer(layer, "k", (nrm * F(1.25)).astype(F))
            attn = self._offer(layer, "attn", self._attention(k))
            x = self._offer(layer, "x", (x + attn * F(0.5)).astype(F))
        normed = self._offer(None, "final_normed", self._norm(x))
        products = normed[:, :, None, :] * engine.head
        logits = self._offer(None, "logits", self._sum(products))
        self.steps = [self._steps(at, logits) for at in range(self.b)]

    def _norm(self, x: np.ndarray) -> np.ndarray:
        return (x / np.sqrt(self._sum(x * x)[..., None] / F(WIDTH))).astype(F)

    def _sum(self, values: np.ndarray) -> np.ndarray:
        """Over the last axis, one element after the other."""
        order = range(WIDTH)
        if self.fault == "by size" and self.b >= 3:
            order = range(WIDTH - 1, -1, -1)
        total = np.zeros(values.shape[:-1], F)
        for at in order:
            total = total + values[..., at]
        return total

    def _attention(self, k: np.ndarray) -> np.ndarray:
        """The sum of all rows so far that the mask admits, by their number."""
        mask = np.ones_like(self.mask) if self.fault == "no mask" else self.mask
        out, total = np.zeros_like(k), np.zeros(k[:, 0].shape, F)
        seen = np.zeros((self.b, 1), F)
        for at in range(self.t):
            total = total + k[:, at] * mask[:, at, None]
            seen = seen + mask[:, at, None]
            out[:, at] = total / np.maximum(seen, F(1))
        if self.fault == "leak":
            out = out + np.roll(k, 1, axis=0) * F(self.b > 1) * F(2**-12)
        return out.astype(F)

    def _offer(self, layer: int | None, field: str, value: np.ndarray) -> np.ndarray:
        """Faults, injection and entries of one field [B, T, n]."""
        engine, plan = self.engine, self.plan
        if field == "attn" and layer == 1:
            flaky = self.fault == "flaky" and engine.runs % 2 and self.b > 1
            once = self.fault == "once" and engine.runs < 4 and self.b > 1
            if flaky or once:
                move_element(value[0, -1], 0)
            if self.fault == "alone" and self.b == 1:
                value[0, -1, 2] += F(engine.runs)
        if self.fault == "late" and field == "k" and layer == 0 and self.b > 1:
            for at, pad in enumerate(self.pads):
                if self.lengths[at] > 12 and 0 in self.pads and max(self.pads):
                    value[at, pad + 9] += 1
        if self.fault == "nan" and field == "attn":
            value[:, self.t - 1] = np.nan
        for at, pad in enumerate(self.pads):
            for pos in range(self.lengths[at]):
                key, row = Key(pos, layer, field), value[at, pad + pos]
                moved = None if plan is None else plan.injection(key)
                if moved is not None and self.fault != "dead tap":
                    move_element(row, moved)
                if plan is not None and (plan.wants(key) or key in plan.tensors):
                    bad = np.flatnonzero(~np.isfinite(row))
                    told = (len(bad), int(bad[0])) if len(bad) else None
                    entry = Entry(key, crc32(row.tobytes()), TensorType("f32", row.shape), told)
                    self.entries.setdefault((at, pos), []).append(entry)
                    self.tensors[at, key] = row.copy()  # type: ignore[index]
        return value

    def _steps(self, at: int, logits: np.ndarray) -> list[Step]:
        """A Step per own token; without logits where the plan wants nothing of its position."""
        steps, pad, plan = [], self.pads[at], self.plan
        for pos in range(self.lengths[at]):
            entries = self.entries.get((at, pos), [])
            row = logits[at, pad + pos].copy()
            spoiled = self.fault == "logits" and self.b > 1 and at == self.b - 1
            untapped = self.fault == "untapped" and plan is None and self.b > 1
            if spoiled or untapped:
                move_element(row, 3)
            if plan is not None and not entries:
                row = np.empty(0, F)
            kept = {
                entry.key: self.tensors[at, entry.key]  # type: ignore[index]
                for entry in entries
                if plan is not None and entry.key in plan.tensors
            }
            steps.append(Step(row, entries, kept))
        return steps


class Loops(Together):
    """One sequence after the other: right, and nothing is batched."""

    def step_batch(
        self, sequences: Sequence[Sequence[int]], plan: Plan | None = None, decode: int = 0
    ) -> list[list[Step]]:
        return [super(Loops, self).step_batch([one], plan, decode)[0] for one in sequences]


class Uncounted(Loops):
    """The same without counters: nobody can see that nothing was batched."""

    capabilities: ClassVar[frozenset[str]] = Together.capabilities - {"counters"}


class Untold(Together):
    """Batches, and neither injects, keeps values, nor tells what ran."""

    capabilities: ClassVar[frozenset[str]] = frozenset({"batch"})


class Healed(Together):
    """With its options for it on, no row depends on its batch."""

    invariant: ClassVar[Mapping[str, str]] = {"invariant": "on"}

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings)
        if settings.options.get("invariant") == "on":
            self.fault = ""


class NotHealed(Together):
    """Its options for it change nothing."""

    invariant: ClassVar[Mapping[str, str]] = {"invariant": "on"}


class NoBatch(Together):
    """Offers everything but the batch."""

    capabilities: ClassVar[frozenset[str]] = Together.capabilities - {"batch"}


class NotWithThis(Together):
    """Its class offers batches; the model that it loads has none."""

    def load(self, model: Any, positions: int) -> None:
        super().load(model, positions)
        self.capabilities = type(self).capabilities - {"batch"}  # type: ignore[misc]
        self.lacks = {"batch": "it takes no mask"}
