"""The kinds of fault, and how one of each is drawn from its number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from parity.keys import Key
from parity.model.generator import prompt_tokens
from parity.model.model import SyntheticModel
from parity.runs.run import Run
from parity.variants import variant_mask
from parity_cuda.emu import EmuModule
from tests.study import faults, patches
from tests.study.cases import BackCase, Case, DiffCase, RowsCase, clean, log_of
from tests.study.draw import Draw, Edit, Edited, draw_model, draw_position, draw_run
from tests.study.faults import Change, OpCall, Value
from tests.study.oracle import places

CODES = ("k", "v")
CACHED = ("k", "ks", "v", "vs")
ATTENTION = ("attention_int8", "attention_f32")
EXPONENTIALS = (
    *(*ATTENTION, "router_topk", "swiglu", "sigmoid_gate", "silu_gate", "conv_step"),
    "delta_gates",
)
PRODUCTS = ("q4_matvec", "f32_matvec", "expert_f32_matvec")
# Outputs with one leading axis of M rows (or M times a group): what a tail can spoil.
ROW_OPS = {
    **dict.fromkeys(("rmsnorm", "headnorm", "q4_matvec", "f32_matvec", "rope", "add"), 1),
    **dict.fromkeys((*ATTENTION, "expert_matvec", "expert_f32_matvec", "swiglu", "combine"), 1),
    **dict.fromkeys(("l2norm", "sigmoid_gate", "silu_gate", "embed", "embed_f32"), 1),
    **dict.fromkeys(("quant8", "quant16", "router_topk", "split_gate", "delta_gates"), 2),
}
FMA = variant_mask(["fma"])


def weight(draw: Draw) -> Case:
    """One stored weight: a float by 1 ULP, a 4-bit weight by one step."""
    model = draw_model(draw, weights=("q4", "q4", "q4", "f32"))
    run = draw_run(draw, model)
    name = draw.pick([name for name in model.names() if not name.endswith(".d")])
    array = model.tensor(name)
    index = draw.below(array.size)
    if name.endswith(".qs"):
        change, step = faults.nibble(index, draw.once_in(2)), "one step"
    else:
        change, step = faults.ulp(index), "1 ULP"
    return _weights(draw, run, {name: change}, f"{step} in {name} element {index}")


def _weights(draw: Draw, run: Run, changes: dict[str, Change], what: str) -> Case:
    return DiffCase(draw.number, run, lambda: faults.Weights(changes), what, held=tuple(changes))


def activation(draw: Draw) -> Case:
    """One element of a value moved by 1 ULP (a code or an id by one step)."""
    run = draw_run(draw, draw_model(draw))
    key = _key(draw, run, lambda field: field not in ("ks", "vs"))
    return _moved(draw, run, key)


def _key(draw: Draw, run: Run, wanted: Callable[[str], bool]) -> Key:
    pos = draw_position(draw, run)
    found = [place for place in places(run.model.config) if wanted(place[1])]
    return Key(pos, *draw.pick(found))


def _moved(draw: Draw, run: Run, key: Key) -> Case:
    index = draw.below(_value(run, key).size)
    change = faults.ulp(index)
    return DiffCase(draw.number, run, lambda: Value(key, change), f"{key} element {index}", key)


def _value(run: Run, key: Key) -> np.ndarray:
    """A value of the same key at a dumped position: for its shape."""
    return clean(run).tensors[key._replace(pos=max(key.pos, run.start))]


def scale(draw: Draw) -> Case:
    """1 ULP in a scale: of stored K or V, of the query or the experts' input, of a weight block."""
    model = draw_model(draw, ("moe-tiny", "dense-tiny"), ("q4",))
    run = draw_run(draw, model)
    which = draw.below(4)
    if which == 0:
        name = draw.pick([name for name in model.names() if name.endswith(".d")])
        index = draw.below(model.tensor(name).size)
        return _weights(draw, run, {name: faults.ulp(index)}, f"1 ULP in {name} element {index}")
    if which == 1 or (which == 2 and model.config.family != "moe"):
        op, number = "quant8", 3 * draw.below(model.config.layers) + 2  # K, V, then the query
    elif which == 2:
        op, number = "quant16", draw.below(2 * model.config.layers)
    else:
        return _moved(draw, run, _key(draw, run, lambda field: field in ("ks", "vs")))
    pos, index = draw_position(draw, run), draw.below(1 << 20)
    what = f"1 ULP in a scale of {op} call {number} at t{pos}"
    return _op(draw, run, pos, op, number, patches.moved(1, index), what)


def _op(
    draw: Draw, run: Run, pos: int, op: str, number: int, patch: faults.Patch, what: str
) -> Case:
    return DiffCase(draw.number, run, lambda: OpCall(pos, op, number, patch), what)


def row_swap(draw: Draw) -> Case:
    """Two rows of a value, of the KV cache or of a weight matrix change places."""
    model = draw_model(draw)
    run, where = draw_run(draw, model), draw.below(4)
    if where == 0:
        name = draw.pick([name for name in model.names() if _matrix(model, name)])
        rows = model.tensor(name).shape[0]
        first, second = _two(draw, rows)
        stored = [name.removesuffix(".qs") + end for end in (".qs", ".d")]
        names = stored if name.endswith(".qs") else [name]
        changes = dict.fromkeys(names, faults.swap(first, second))
        return _weights(draw, run, changes, f"rows {first} and {second} of {names[0]}")
    if where == 1:
        pos, layer = _late(draw, run), draw.pick(_attention_layers(model))
        first, second = _two(draw, pos)
        parts = _parts(draw, model)
        what = f"rows {first} and {second} of {'+'.join(parts)} of layer {layer} before t{pos}"
        return _cache(draw, run, pos, layer, parts, faults.swap(first, second), what)
    shapes = {key.field: value.shape for key, value in clean(run).tensors.items()}
    key = _key(draw, run, lambda field: len(shapes[field]) > 1)
    first, second = _two(draw, shapes[key.field][0])
    change = faults.swap(first, second)
    what = f"rows {first} and {second} of {key}"
    return DiffCase(draw.number, run, lambda: Value(key, change), what, key)


def _matrix(model: SyntheticModel, name: str) -> bool:
    return not name.endswith(".d") and model.tensor(name).ndim > 1


def _two(draw: Draw, count: int) -> tuple[int, int]:
    first = draw.below(count)
    return first, (first + 1 + draw.below(count - 1)) % count


def _late(draw: Draw, run: Run) -> int:
    """A dumped position with two rows or more before it."""
    return run.start + draw.below(run.n)


def _attention_layers(model: SyntheticModel | Edited) -> list[int]:
    config = model.config
    return [layer for layer in range(config.layers) if not config.is_gdn(layer)]


def _parts(draw: Draw, model: SyntheticModel | Edited) -> tuple[str, ...]:
    if model.config.kv == "f32":
        return draw.pick([("k",), ("v",), ("k", "v")])
    return draw.pick([("k",), ("v",), ("k", "ks"), ("v", "vs"), CACHED])


def _cache(
    draw: Draw, run: Run, pos: int, layer: int, parts: Sequence[str], edit: Change, what: str
) -> Case:
    return DiffCase(draw.number, run, lambda: faults.Rows(pos, layer, parts, edit), what)


def stale_row(draw: Draw) -> Case:
    """A row of the KV cache becomes a copy of the one before it, between two steps."""
    model = draw_model(draw)
    run = draw_run(draw, model)
    pos, layer, parts = _late(draw, run), draw.pick(_attention_layers(model)), _parts(draw, model)
    row = 1 + draw.below(pos - 1)

    def edit(array: np.ndarray) -> None:
        array[row] = array[row - 1]

    what = f"row {row} of {'+'.join(parts)} of layer {layer} stale before t{pos}"
    return _cache(draw, run, pos, layer, parts, edit, what)


def position(draw: Draw) -> Case:
    """A step at another position, or K or V stored one row off."""
    model = draw_model(draw)
    run, by = draw_run(draw, model), draw.pick((-1, 1))
    pos = max(1, draw_position(draw, run))
    if model.config.kv == "f32" or draw.once_in(2):
        return DiffCase(
            draw.number, run, lambda: faults.Shifted(pos, by), f"t{pos} computed at {pos + by}"
        )
    layer, part = draw.below(model.config.layers), draw.below(2)
    what = f"{'KV'[part]} of layer {layer} stored at row {pos + by} at t{pos}"
    return _op(draw, run, pos, "quant8", 3 * layer + part, patches.stored_at(by), what)


def length(draw: Draw) -> Case:
    """Attention over one key too few or too many."""
    run, by = draw_run(draw, draw_model(draw)), draw.pick((-1, 1))
    pos = max(1, draw_position(draw, run))
    return _attention(draw, run, pos, patches.sees(by), f"{by:+d} key")


def _attention(draw: Draw, run: Run, pos: int, patch: faults.Patch, what: str) -> Case:
    op = ATTENTION[run.model.config.kv == "f32"]
    number = draw.below(len(_attention_layers(run.model)))  # type: ignore[arg-type]
    return _op(draw, run, pos, op, number, patch, f"{what} in {op} call {number} at t{pos}")


def mask(draw: Draw) -> Case:
    """Attention that does not see one key, or in M rows sees the next row's."""
    if draw.once_in(4):
        model = draw_model(draw)
        op = ATTENTION[model.config.kv == "f32"]
        number = draw.below(len(_attention_layers(model)))
        what = f"causal mask of {op} call {number} off by one"
        return _rows(draw, model, 2 + draw.below(4), op, number, patches.looks_ahead, what)
    run = draw_run(draw, draw_model(draw))
    pos = max(1, draw_position(draw, run))
    hidden = draw.below(pos + 1)
    return _attention(draw, run, pos, patches.masked(hidden), f"key {hidden} hidden")


def _rows(
    draw: Draw,
    model: SyntheticModel,
    size: int,
    op: str,
    number: int,
    patch: faults.Patch,
    what: str,
) -> Case:
    start = draw.below(8)
    tokens = prompt_tokens(model.seed, start + size + 2, model.config.vocab)
    return RowsCase(
        draw.number, model, tokens, start, size, lambda: OpCall(0, op, number, patch, True), what
    )


def rope(draw: Draw) -> Case:
    """One head's chain rotated at the position before or after."""
    run, by = draw_run(draw, draw_model(draw)), draw.pick((-1, 1))
    pos, number = draw_position(draw, run), draw.below(2 * len(_attention_layers(run.model)))
    what = f"{'KQ'[number % 2]} of RoPE call {number} turned by position {pos + by} at t{pos}"
    return _op(draw, run, pos, "rope", number, patches.turned(by), what)


def rollback(draw: Draw) -> Case:
    """A part of the state, an element of it, or the length, that a rollback leaves behind."""
    model = draw_model(draw, ("hybrid-tiny", "hybrid-tiny", "hybrid-tiny", "moe-tiny"), ("q4",))
    config = model.config
    start, size = 1 + draw.below(6), 2 + draw.below(3)
    recurrent = [layer for layer in range(config.layers) if config.is_gdn(layer)]
    if not recurrent or draw.once_in(8):
        keeps, layer = draw.once_in(2), draw.pick(_attention_layers(model))
        what = "the length is kept" if keeps else f"the newest K row of layer {layer} is cleared"
        left = partial(faults.Left, length=keeps, clear=None if keeps else layer)
        return BackCase(draw.number, model, start, size, left, what)
    part, layers = draw.pick(("s", "hist")), recurrent
    if draw.once_in(2):
        layers = [draw.pick(recurrent)]
    sizes = {"s": int(np.prod(config.gdn[1:])), "hist": 3 * config.conv_dim}
    index = draw.below(sizes[part]) if len(layers) == 1 and draw.once_in(2) else None
    parts = [(layer, part, index) for layer in layers]
    what = f"{part} of layers {layers} left" + ("" if index is None else f", element {index}")
    return BackCase(draw.number, model, start, size, lambda: faults.Left(parts), what)


def contraction(draw: Draw) -> Case:
    """a * b + c rounded once: in one product of ``cpu``, or in one launch of ``emu`` as a compiler
    builds it that contracts."""
    model = draw_model(draw, weights=("q4", "f32"))
    run = draw_run(draw, model)
    pos = draw_position(draw, run)
    calls = log_of(run)
    if draw.once_in(2):
        name, number = draw.pick([(op, nth) for _, op, nth, _ in calls if op in PRODUCTS])
        patch = patches.with_variant(FMA)
        return _op(draw, run, pos, name, number, patch, f"{name} call {number} at t{pos}")
    name, number = draw.pick([(op, nth) for _, op, nth, _ in calls])
    return _launch(draw, run, pos, name, number, faults.contracted)


def _launch(
    draw: Draw, run: Run, pos: int, name: str, number: int, build: Callable[[], EmuModule]
) -> Case:
    what = f"emu: launch {number} of {name} at t{pos}"
    fault = partial(faults.Launch, pos, name, number, build)
    return DiffCase(draw.number, run, fault, what, emulated=True)


def flush(draw: Draw) -> Case:
    """Subnormals flushed to zero in one op of ``cpu`` or one launch of ``emu``; a matrix is scaled
    down until what it makes is subnormal."""
    base = draw_model(draw, weights=("f32",))
    name = draw.pick([name for name in base.names() if _projection(name)])
    power = -(127 + draw.below(8))

    def shrink(array: np.ndarray) -> None:
        np.ldexp(array, power, out=array)

    model = Edited(base, f"{name} * 2^{power}", {name: shrink})
    run = draw_run(draw, model)
    small = [call for call in log_of(run) if call[3] and call[0] >= run.start]
    pos, op, number, _ = draw.pick(small)
    if draw.once_in(2):
        what = f"{op} call {number} at t{pos}, {model.told}"
        return _op(draw, run, pos, op, number, patches.flushed, what)
    return _launch(draw, run, pos, op, number, faults.flushing)


def _projection(name: str) -> bool:
    ends = ("k_proj", "v_proj", "q_proj", "gate", "up", "down", "router", "qkv_proj", "z_proj")
    return name.endswith(ends)


def negative_zero(draw: Draw) -> Case:
    """A zero with the other sign, in a model that has zero weights."""
    base = draw_model(draw)
    norms = [name for name in base.names() if name.endswith("norm")]
    edits: dict[str, Edit] = {}
    for name in norms:
        edits[name] = _zero(draw.below(base.tensor(name).size))
    run = draw_run(draw, Edited(base, "a zero in every norm", edits))
    zeros = {key: _zeros(value) for key, value in clean(run).tensors.items()}
    key = draw.pick([key for key, found in zeros.items() if found.size])
    index = int(draw.pick(zeros[key].tolist()))
    change = faults.flip(index, int(faults.SIGN))
    what = f"sign of the zero at {key} element {index}"
    return DiffCase(draw.number, run, lambda: Value(key, change), what, key)


def _zero(index: int) -> Edit:
    def edit(array: np.ndarray) -> None:
        array[index] = 0.0

    return edit


def _zeros(value: np.ndarray) -> np.ndarray:
    if value.dtype != np.float32:
        return np.empty(0, np.int64)
    return np.flatnonzero(value.reshape(-1) == 0)


def nan_payload(draw: Draw) -> Case:
    """Another payload in a NaN that both sides have."""
    model = overflowing(draw)
    run = draw_run(draw, model, n=1, dump_prefill=False, extra_fields=("ffn", "s"))
    bad = ((key, value) for key, value in clean(run).tensors.items() if _nonfinite(value))
    key, value = next(bad)
    where = np.flatnonzero(np.isnan(value.reshape(-1)))
    if not where.size:
        raise NoSuchFault(f"{key} overflows without a NaN, {model.told}")
    index, bits = int(draw.pick(where.tolist())), 1 + draw.below((1 << 22) - 1)
    change = faults.flip(index, bits)
    what = f"payload ^ {bits:#x} of the NaN at {key} element {index}"
    return DiffCase(draw.number, run, lambda: Value(key, change), what, key)


def overflowing(draw: Draw) -> Edited:
    """A model with one row of weights so large that its products overflow both ways, to a NaN."""
    base = draw_model(draw, weights=("f32",))
    ends = ("k_proj", "router", "qkv_proj")
    name = draw.pick([name for name in base.names() if name.endswith(ends)])
    name = "lm_head" if draw.once_in(3) else name
    row = draw.below(base.tensor(name).shape[0])

    def overflow(array: np.ndarray) -> None:
        array[row] = np.where(array[row] < 0, np.float32(-3e38), np.float32(3e38))

    return Edited(base, f"row {row} of {name} overflows", {name: overflow})


class NoSuchFault(Exception):
    """What was drawn cannot be planted; the next number is taken."""


def _nonfinite(value: np.ndarray) -> bool:
    return value.dtype == np.float32 and not np.isfinite(value).all()


def wrong_expf(draw: Draw) -> Case:
    """Another expf in one op call."""
    run = draw_run(draw, draw_model(draw))
    pos = draw_position(draw, run)
    name, number = draw.pick([(op, nth) for _, op, nth, _ in log_of(run) if op in EXPONENTIALS])
    functions = {
        "NumPy's": patches.numpy_expf,
        "the platform's": patches.libm_expf,
        "2^(x log2 e)": patches.powers_of_two,
        "one in four off": patches.now_and_then(4),
    }
    told = draw.pick(list(functions))
    patch = patches.borrowing(functions[told])
    return _op(draw, run, pos, name, number, patch, f"{told} in {name} call {number} at t{pos}")


def tie(draw: Draw) -> Case:
    """A tie broken otherwise: among equal experts, or among equal logits."""
    if draw.once_in(4):
        base = draw_model(draw)
        tied = [name for name in base.names() if name.split(".")[0] == "lm_head"]
        model = Edited(base, "logits in equal pairs", dict.fromkeys(tied, _pairs))
        run = draw_run(draw, model, n=2, tokens_from=draw.pick(("own", "ref")))
        what = f"the last of equal logits, tokens from {run.tokens_from}"
        return DiffCase(draw.number, run, faults.Sampler, what)
    base = draw_model(draw, ("moe-tiny",))
    tied = [name for name in base.names() if name.endswith("router")]
    run = draw_run(draw, Edited(base, "experts in equal pairs", dict.fromkeys(tied, _pairs)))
    pos, layer = draw_position(draw, run), draw.below(base.config.layers)
    what = f"the last of equal experts in layer {layer} at t{pos}"
    return _op(draw, run, pos, "router_topk", layer, patches.last_of_equal, what)


def _pairs(array: np.ndarray) -> None:
    """Every odd row becomes a copy of the row before it."""
    array[1::2] = array[: array.shape[0] - 1 : 2]


def tail_rows(draw: Draw) -> Case:
    """In M rows of one forward, the rows past the last whole tile."""
    model = draw_model(draw)
    tile = draw.pick((2, 4))
    size = draw.pick([m for m in range(2, 9) if m % tile])
    run = draw_run(draw, model)
    found = [(op, nth) for _, op, nth, _ in log_of(run) if op in ROW_OPS]
    op, number = draw.pick(found)
    change = draw.pick(("stale", "stale", "ulp"))
    what = f"{change} tail (tiles of {tile}) of {op} call {number}"
    patch = patches.tail(tile, ROW_OPS[op], change)
    return _rows(draw, model, size, op, number, patch, what)


KINDS: dict[str, Callable[[Draw], Case]] = {
    "weight": weight,
    "activation": activation,
    "scale": scale,
    "row swap": row_swap,
    "stale KV row": stale_row,
    "position": position,
    "visible length": length,
    "mask": mask,
    "RoPE": rope,
    "rollback": rollback,
    "contraction": contraction,
    "flush to zero": flush,
    "-0": negative_zero,
    "NaN payload": nan_payload,
    "wrong expf": wrong_expf,
    "tie": tie,
    "tail rows": tail_rows,
}
