"""Engines whose M rows are wrong on purpose: ``tests.red.row_faults:NAME``.

``OnCpu@fault=NAME`` and ``OnEmu@fault=NAME`` plant one of ``FAULTS`` between a decoder and its
ops: a method named like an op runs in its place, in a forward of more than one row alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from parity.keys import Key
from parity.model.model import Model
from parity.protocol import EngineSettings, Injection, Plan, Step
from parity.variants import variant_mask
from parity_cpu.calls import Calls
from parity_cpu.engine import Engine
from parity_cuda.backend import Backend
from parity_cuda.emu_backend import EmuBackend
from parity_cuda.engine import EmuEngine
from parity_cuda.sources import kernel_sources

Op = Callable[..., None]
SPLIT_K = variant_mask(["split_k"])
SPLIT_FROM = 5  # rows from which SplitByRows adds in another order


class Fault:
    """``rows``: M of the forward that runs. ``seen``: calls of each op in it so far. ``scratch``:
    ops write beside the cache, and what they wrote is appended to it."""

    rows, scratch = 1, False

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def begin(self, rows: int) -> None:
        """A forward of ``rows`` rows begins."""
        self.rows = rows
        self.seen.clear()

    def run(self, name: str, op: Op, *args: Any) -> None:
        """Run the op, or what stands in its place."""
        planted = getattr(self, name, None)
        if planted is None or self.rows == 1:
            op(*args)
            return
        planted(op, *args)
        self.seen[name] += 1


class SplitByRows(Fault):
    """Not batch-invariant: with 5 rows or more a sum is split into four."""

    def q4_matvec(self, op: Op, *args: Any) -> None:
        *rest, variants = args
        op(*rest, variants | (SPLIT_K if self.rows >= SPLIT_FROM else 0))


class KeysOff(Fault):
    """Row m > 0 of attention sees ``more`` keys too many."""

    more = 0

    def attention_int8(self, op: Op, out: Any, q: Any, q_scale: Any, *args: Any) -> None:
        *cached, scale, pos, variants = args[:7]
        for m in range(self.rows):
            at, keys = slice(m, m + 1), pos + m + (self.more if m else 0)
            op(out[at], q[at], q_scale[at], *cached, scale, keys, variants, *args[7:])

    def attention_f32(self, op: Op, out: Any, q: Any, *args: Any) -> None:
        k, v, scale, pos, variants = args[:5]
        for m in range(self.rows):
            at, keys = slice(m, m + 1), pos + m + (self.more if m else 0)
            op(out[at], q[at], k, v, scale, keys, variants, *args[5:])


class KeyTooMany(KeysOff):
    """Row m > 0 sees the next row's key too."""

    more = 1


class KeyTooFew(KeysOff):
    """Row m > 0 does not see its own key."""

    more = -1


class SharedScratch(Fault):
    """All rows of the query read the scale that row 0 left."""

    def attention_int8(self, op: Op, out: Any, q: Any, q_scale: Any, *args: Any) -> None:
        q_scale[1:] = q_scale[:1]
        op(out, q, q_scale, *args)


class LateRow(Fault):
    """The K and V rows of m > 0 are written one position further on (n_kv heads, not n_q)."""

    heads = 2

    def quant8(self, op: Op, q: Any, scale: Any, x: Any, variants: int) -> None:
        if q.shape[1] != self.heads:
            op(q, scale, x, variants)
            return
        held = np.empty(q.shape, q.dtype)
        op(held, scale, x, variants)
        whole = q.base
        at = (q.ctypes.data - whole.ctypes.data) // q[0].nbytes
        q[0] = held[0]
        if self.scratch:
            q[1:] = -1  # what an earlier run left there may be right
        whole[at + 2 : at + self.rows + 1] = held[1:]


class RopeAtFirst(Fault):
    """Every row is rotated as the first: at pos instead of pos + m."""

    def rope(self, op: Op, out: Any, x: Any, freq: Any, pos: int, variants: int) -> None:
        for m in range(self.rows):
            op(out[m : m + 1], x[m : m + 1], freq, pos, variants)


class HistStuck(Fault):
    """hist does not advance between the rows of a block, only after its last."""

    def conv_step(self, op: Op, out: Any, hist: Any, *args: Any) -> None:
        before = hist.copy()
        op(out, hist, *args)
        if self.seen["conv_step"] % self.rows != self.rows - 1:
            hist[...] = before


class StateTwice(Fault):
    """S advances twice at every row but the first."""

    def delta_step(self, op: Op, *args: Any) -> None:
        op(*args)
        if self.seen["delta_step"] % self.rows:
            op(*args)


class Overlap(Fault):
    """Shared memory is laid out for the keys of row 0: later rows' scores run into the rest."""


FAULTS: dict[str, type[Fault]] = {
    "none": Fault,
    "split_by_rows": SplitByRows,
    "key_too_many": KeyTooMany,
    "key_too_few": KeyTooFew,
    "shared_scratch": SharedScratch,
    "late_row": LateRow,
    "rope_at_first": RopeAtFirst,
    "hist_stuck": HistStuck,
    "state_twice": StateTwice,
    "overlap": Overlap,
}
SHARED = Path(__file__).with_name("attention_in_shared.cu")


class _CpuOps(Calls):
    """The decoder's ``call``, with the fault in between."""

    def __init__(self, fault: Fault) -> None:
        super().__init__()
        self.fault = fault

    def __call__(self, op: Any, *args: Any) -> None:
        self.counts[op.__name__] += 1
        self.fault.run(op.__name__, op, *args)


class OnCpu(Engine):
    """``cpu`` with one of FAULTS."""

    options = ("fault",)

    def load(self, model: Model, positions: int) -> None:
        super().load(model, positions)
        self.fault = FAULTS[self.settings.options["fault"]]()
        self._decoder.call = _CpuOps(self.fault)

    def _forward(self, tokens: Sequence[int], plan: Plan | None) -> list[Step]:
        self.fault.begin(len(tokens))
        return super()._forward(tokens, plan)


class _DeviceOps:
    """The decoder's ``ops``, with the fault in between."""

    def __init__(self, ops: Any, fault: Fault) -> None:
        self._ops, self._fault = ops, fault

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._ops, name)
        if not callable(found):
            return found
        return lambda *args: self._fault.run(name, found, *args)


class OnEmu(EmuEngine):
    """``emu`` with one of FAULTS."""

    def open(self, settings: EngineSettings) -> Backend:
        return EmuBackend(replace(settings, options={"fuse": "off"}))  # faults are of ops

    def load(self, model: Model, positions: int) -> None:
        super().load(model, positions)
        self.fault = FAULTS[self.settings.options["fault"]]()
        self.fault.scratch = True
        self._decoder.ops = _DeviceOps(self._decoder.ops, self.fault)  # type: ignore[assignment]

    def _forward(self, tokens: Sequence[int], plan: Plan | None) -> list[Step]:
        self.fault.begin(len(tokens))
        return super()._forward(tokens, plan)


# --- what step_rows gives -------------------------------------------------------------------------


class Loops(Engine):
    """Its rows are single steps: right, and nothing is batched."""

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        return [self.step(token, plan) for token in tokens]


class StaleLogits(Engine):
    """The last row's logits are those of the row before; its keys are right."""

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        steps = super().step_rows(tokens, plan)
        return [*steps[:-1], replace(steps[-1], logits=steps[-2].logits)]


class LostStep(Engine):
    """Gives one step too few."""

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        return super().step_rows(tokens, plan)[:-1]


class ShortHash(Engine):
    """Hashes everything right; the tap itself moves the logits of the last row by 1 ULP."""

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        steps = super().step_rows(tokens, plan)
        if plan is None:
            steps[-1].logits.view(np.uint32)[0] ^= 1
        return steps


class LateKv(Engine):
    """After a forward of rows the last layer's newest V row is a copy of the one before: every key
    of the block is right, the state is not."""

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        steps = super().step_rows(tokens, plan)
        values = self._state.layers[-1]["v"]
        values[self.length - 1] = values[self.length - 2]
        return steps


class Hidden(Engine):
    """Remembers outside its state that rows ran: the second step after them is wrong."""

    after = 0

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        self.after = 3
        return super().step_rows(tokens, plan)

    def step(self, token: int, plan: Plan | None = None) -> Step:
        self.after -= 1
        if self.after == 1 and plan is not None:
            plan = replace(plan, inject=Injection(Key(self.length, 2, "x"), 0))
        return super().step(token, plan)

    def reset(self) -> None:
        super().reset()
        self.after = 0


class Shaky(Engine):
    """The first forward of rows is wrong, and no other: no rerun confirms it."""

    wrong = True

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        if plan is not None and self.wrong:
            self.wrong = False
            plan = replace(plan, inject=Injection(Key(self.length + 1, 1, "attn"), 0))
        return super().step_rows(tokens, plan)


class Drifting(Engine):
    """Every forward of rows is wrong in another place."""

    count = 0

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        if plan is not None:
            self.count += 1
            plan = replace(plan, inject=Injection(Key(self.length, self.count % 4, "attn"), 0))
        return super().step_rows(tokens, plan)


class NotFinite(Engine):
    """Its last norm overflows, in rows and in single steps alike."""

    def load(self, model: Model, positions: int) -> None:
        super().load(model, positions)
        self._decoder.final_norm[...] = np.finfo(np.float32).max


class DeadTap(Engine):
    """Its tap shows what rows would have been without any injection."""

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        return super().step_rows(tokens, None if plan is None else replace(plan, inject=None))


class LongChunk(Engine):
    """A prefill of more than two tokens at once moves one element of its third."""

    def prefill(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        if plan is not None and len(tokens) > 2:
            plan = replace(plan, inject=Injection(Key(self.length + 2, 1, "v"), 0))
        return super().prefill(tokens, plan)


# --- capabilities ---------------------------------------------------------------------------------


class NoRows(Engine):
    """Offers neither rows nor rollback nor counters."""

    capabilities: ClassVar[frozenset[str]] = frozenset({"state", "capture", "inject"})


class NoRollback(Engine):
    """Offers rows, and no rollback."""

    capabilities: ClassVar[frozenset[str]] = Engine.capabilities - {"rollback"}


class WrongNoRollback(StaleLogits):
    """Wrong rows, and no rollback."""

    capabilities: ClassVar[frozenset[str]] = Engine.capabilities - {"rollback"}


class NoInject(Engine):
    """Offers everything but injection."""

    capabilities: ClassVar[frozenset[str]] = Engine.capabilities - {"inject"}


# --- shared memory --------------------------------------------------------------------------------


class _SharedOps(_DeviceOps):
    """Attention by attention_in_shared.cu."""

    def attention_int8(self, out: Any, q: Any, *args: Any) -> None:
        """Memory for the keys of the last row, laid out for the first with ``overlap``."""
        *cached, sm_scale, pos, _, _ = args
        rows, heads, hd = q.shape
        overlap = isinstance(self._fault, Overlap)
        sizes = [np.int32(value) for value in (overlap, cached[1].shape[1], hd)]
        given = [out, q, *cached, sm_scale, pos, *sizes]
        shared = 4 * (int(pos[0]) + rows + hd)
        self._ops.backend.launch("attention_in_shared", (heads, rows), 1, given, shared=shared)


class ScoresInShared(OnEmu):
    """``emu`` with attention_in_shared.cu: right with ``@fault=none``, red with ``overlap``."""

    def open(self, settings: EngineSettings) -> Backend:
        sources = {**kernel_sources(), SHARED.name: SHARED.read_text()}
        return EmuBackend(replace(settings, options={"fuse": "off"}), sources)

    def load(self, model: Model, positions: int) -> None:
        super().load(model, positions)
        self._decoder.ops = _SharedOps(self._decoder.ops._ops, self.fault)  # type: ignore[assignment]
