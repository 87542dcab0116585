"""torch's sums, on the CPU or a CUDA device: ``torch.linear``, ``torch.sum``, ... (docs/order.md).

torch is imported when an op is made. No global setting is left changed: threads, TF32 and the
reduced-precision switch are set for the time of one call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from parity.errors import InputError, NotRunError
from parity.order.adapters.called import CalledOp, Floats, Library, Spread, spread
from parity.order.own.asked import needed
from parity.order.own.denominators import SoftmaxOp
from parity.order.own.norms import NormOp, norm_op
from parity.order.sums import Ask, refuse_unknown, whole_number
from parity.order.tree import Format, Terms

F32 = "write --dtype f32"
HEAD = 64  # features of one attention head unless @head is given
_SWITCHES = ("tf32", "reduced")


@dataclass(frozen=True)
class Shape:
    """What one op is asked for, and torch's words for it."""

    torch: Any
    name: str
    K: int
    N: int
    M: int
    dtype: Format
    device: str
    options: Mapping[str, str]

    @property
    def op(self) -> str:
        """As typed."""
        return f"torch.{self.name}"

    def tensor(self, values: Floats) -> Any:
        """``values``, exact in the op's dtype, on its device."""
        made = self.torch.from_numpy(np.ascontiguousarray(values))
        # First to the device, which is faster at making another dtype of it.
        return made.to(device=self.device).to(dtype=_dtype(self.torch, self.dtype))

    @property
    def arrays(self) -> Library:
        """Tensors of the op's dtype on its device."""

        def load(w: Floats, rows: int) -> list[Any]:
            made = self.tensor(w)
            return [made] if len(w) == rows else [part.clone() for part in made.split(rows)]

        def fetch(found: list[Any]) -> npt.NDArray[np.float32]:
            return _host(found[0] if len(found) == 1 else self.torch.cat(found))

        return Library(load, fetch, self.settings)

    def zeros(self, *shape: int) -> Any:
        """Zeros of the op's dtype on its device."""
        kind = _dtype(self.torch, self.dtype)
        return self.torch.zeros(shape, device=self.device, dtype=kind)

    @contextmanager
    def settings(self) -> Iterator[None]:
        """Threads and switches as asked for, put back afterwards."""
        torch, options = self.torch, self.options
        matmul = torch.backends.cuda.matmul
        threads, tf32 = torch.get_num_threads(), matmul.allow_tf32
        reduced = matmul.allow_bf16_reduced_precision_reduction
        try:
            if "threads" in options:
                torch.set_num_threads(int(options["threads"]))
            if "tf32" in options:
                matmul.allow_tf32 = options["tf32"] == "on"
            if "reduced" in options:
                matmul.allow_bf16_reduced_precision_reduction = options["reduced"] == "on"
            with torch.inference_mode():
                yield
        finally:
            torch.set_num_threads(threads)
            matmul.allow_tf32 = tf32
            matmul.allow_bf16_reduced_precision_reduction = reduced


class TorchSums:
    """Family ``torch``. M: rows of the batch; of ``sum``, rows that one call reduces; of
    ``attention``, sequences (one query each, ``@q`` gives more)."""

    def names(self) -> tuple[str, ...]:
        """All its ops."""
        return tuple(_MAKERS)

    def make(self, name: str, ask: Ask, M: int) -> CalledOp:
        """As ``SumFamily.make``."""
        maker, known = _MAKERS[name]
        options = ask.settings
        refuse_unknown(f"torch.{name}", options, (*known, "threads"))
        for switch in (one for one in _SWITCHES if one in options):
            typed = f"torch.{name}: @{switch}={options[switch]}"
            if options[switch] not in ("on", "off"):
                raise InputError(typed, f"write @{switch}=on or off")
            if ask.device == "cpu":
                raise InputError(f"{typed}: a switch of CUDA devices", "write --device cuda")
        shape = Shape(_torch(ask.device), name, ask.K, ask.N, M, ask.dtype, ask.device, options)
        return maker(shape)


def _product(shape: Shape) -> CalledOp:
    """``F.linear(x, w)``, ``torch.mv(w, x)`` or ``torch.matmul(x, w)``, w (K, N) contiguous there.

    The (M, N) outputs are picked from as ``Spread`` says.
    """
    if shape.name == "mv" and shape.M != 1:
        raise InputError(f"{shape.op} --M {shape.M}: it takes one x", "write --M 1")
    picked = spread(shape.op, shape.options, shape.M, shape.N)
    torch = shape.torch

    def call(x: Floats | None, w: Any) -> Any:
        xs = shape.tensor(needed(x))
        if shape.name == "mv":
            return torch.mv(w, xs)
        batch = xs.expand(shape.M, shape.K).contiguous()
        if shape.name == "linear":
            return picked.pick(torch.nn.functional.linear(batch, w))
        return picked.pick(torch.matmul(batch, w.T.contiguous()))

    op = _made(shape, "products", shape.N, call, _product_layout(shape, picked))
    return replace(op, batch=picked.batch)


def _product_layout(shape: Shape, picked: Spread) -> dict[str, str]:
    w = f"w ({shape.K}, {shape.N})" if shape.name == "matmul" else f"w ({shape.N}, {shape.K})"
    x = f"x ({shape.K},)" if shape.name == "mv" else f"x ({shape.M}, {shape.K})"
    return {"shape": f"{x}, {w}", "layout": "contiguous", "batch": picked.told}


def _sum(shape: Shape) -> CalledOp:
    torch = shape.torch

    def call(x: Floats | None, w: Any) -> Any:
        # One row as one vector: torch adds it in another order than a row of several.
        return torch.sum(w[0])[None] if shape.M == 1 else torch.sum(w, dim=1)

    layout = {"shape": f"w ({shape.M}, {shape.K}), sums along the last axis"}
    return _made(shape, "values", shape.M, call, layout)


def _rms_norm(shape: Shape) -> NormOp:
    """The mean of squares inside ``F.rms_norm``, read back exactly through its eps."""
    if shape.dtype != "f32":
        raise InputError(f"{shape.op} --dtype {shape.dtype}: too few digits to read its sum", F32)
    torch = shape.torch

    def norm(eps: np.float32, x: Any) -> Any:
        return torch.nn.functional.rms_norm(x, (shape.K,), None, float(eps))

    key = key_of(shape, {"shape": f"x ({shape.M}, {shape.K}), normed along the last axis"})
    return norm_op(shape.op, shape.K, shape.M, norm, key, shape.arrays)


def _softmax(shape: Shape) -> SoftmaxOp:
    """The denominator of ``torch.softmax`` along the last axis."""
    if shape.dtype != "f32":
        raise InputError(f"{shape.op} --dtype {shape.dtype}: too few digits to see its sum", F32)

    def softmax(_: None, scores: Any) -> Any:
        return shape.torch.softmax(scores, dim=-1)

    key = key_of(shape, {"shape": f"x ({shape.M}, {shape.K}), along the last axis"})
    kinds: tuple[Format, Format] = ("f32", "f32")
    return SoftmaxOp(
        shape.op, shape.K, shape.M, "values", *kinds, softmax, key, arrays=shape.arrays
    )


def _attention(shape: Shape) -> CalledOp:
    """The sum over the keys of P V, all weights equal: scores are 0, so that each weight is 1/K,
    and K times the output is the sum of V along the keys. K a power of two keeps that exact."""
    _require_power(shape)
    queries = whole_number(shape.op, shape.options, "q", 1, 1)
    head = whole_number(shape.op, shape.options, "head", HEAD, 1)
    if shape.N % head:
        raise InputError(f"{shape.op} --N {shape.N}: no multiple of {head}", "or give @head")
    heads, torch = shape.N // head, shape.torch
    picked = Spread(shape.M * queries, shape.N)

    def call(x: Floats | None, w: Any) -> Any:
        values = w.reshape(heads, head, shape.K).transpose(1, 2)
        values = values.expand(shape.M, heads, shape.K, head).contiguous()
        query = shape.zeros(shape.M, heads, queries, head)
        keys = shape.zeros(shape.M, heads, shape.K, head)
        found = torch.nn.functional.scaled_dot_product_attention(query, keys, values)
        rows = found.transpose(1, 2).reshape(shape.M * queries, shape.N)
        return picked.pick(rows.float()) * shape.K

    layout = {
        "shape": f"v ({shape.M}, {heads}, {shape.K}, {head}), {queries} queries",
        "weights": "equal",
        "batch": picked.told,
    }
    return _made(shape, "values", shape.N, call, layout)


def _require_power(shape: Shape) -> None:
    if shape.K & (shape.K - 1):
        raise InputError(f"{shape.op} --K {shape.K}: no power of two", "1/K must be exact: --K 256")


def _made(
    shape: Shape,
    terms: Terms,
    rows: int,
    call: Callable[[Floats | None, Any], Any],
    layout: dict[str, str],
) -> CalledOp:
    kinds: tuple[Format, Format] = (shape.dtype, shape.dtype)
    key = key_of(shape, layout)
    return CalledOp(shape.op, shape.K, rows, terms, *kinds, call, key, arrays=shape.arrays)


def key_of(shape: Shape, layout: Mapping[str, str]) -> dict[str, str]:
    """What the order holds for."""
    told = {name: text for name, text in shape.options.items() if name != "row"}
    return {"op": shape.op, "dtype": shape.dtype, **_machine(shape), **layout, **told}


def _machine(shape: Shape) -> dict[str, str]:
    """Device, versions and flags that the bits may depend on."""
    torch = shape.torch
    key = {"torch": torch.__version__}
    if shape.device == "cpu":
        threads = shape.options.get("threads", str(torch.get_num_threads()))
        key |= {"device": f"cpu, {torch.backends.cpu.get_cpu_capability()}", "threads": threads}
        key["onednn"] = str(torch.backends.mkldnn.is_available())
        key["mkl"] = str(torch.backends.mkl.is_available())
        return key
    matmul = torch.backends.cuda.matmul
    key |= {"device": torch.cuda.get_device_name(), "cuda": str(torch.version.cuda)}
    key["tf32"] = shape.options.get("tf32", _on(matmul.allow_tf32))
    flag = matmul.allow_bf16_reduced_precision_reduction
    key["reduced"] = shape.options.get("reduced", _on(flag))
    return key


def _on(flag: Any) -> str:
    return "on" if flag else "off"


def _host(tensor: Any) -> npt.NDArray[np.float32]:
    found: npt.NDArray[np.float32] = tensor.float().cpu().numpy()
    return found


def _dtype(torch: Any, name: str) -> Any:
    return {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[name]


def _torch(device: str) -> Any:
    try:
        import torch
    except ImportError as error:
        raise NotRunError(
            "torch is not installed", "pip install 'parity-harness[torch]'"
        ) from error
    if device == "cuda" and not torch.cuda.is_available():
        raise NotRunError("torch sees no CUDA device", "write --device cpu")
    return torch


_MAKERS: Mapping[str, tuple[Callable[[Shape], CalledOp], tuple[str, ...]]] = {
    "linear": (_product, ("row", *_SWITCHES)),
    "matmul": (_product, ("row", *_SWITCHES)),
    "mv": (_product, _SWITCHES),
    "sum": (_sum, ()),
    "rms_norm": (_rms_norm, ()),
    "softmax": (_softmax, ()),
    "attention": (_attention, ("q", "head")),
}
