"""Values between modules: a mode sees every torch function of a forward, a listener knows which
of them makes a field. Nothing of torch or transformers is replaced, and all of it ends with the
``with`` block.

A listener lives while one module runs (taps.py starts and ends it). It is told of each function
after the call (``after``), and before it (``before``) where a value must be offered as it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from parity_torch.values import Tensor, Value, rows_of

Offer = Callable[[str, Callable[[], Value]], None]
Size = tuple[int, int]


class Listener:
    """Base: hears nothing. ``offer`` takes a field's name and what makes its Value."""

    def __init__(self, module: Any, size: Size, offer: Offer) -> None:
        self.module, self.size, self.offer = module, size, offer

    def before(self, name: str, args: Sequence[Any]) -> None:
        """The function ``name`` is about to run."""

    def after(self, name: str, args: Sequence[Any], out: Any) -> None:
        """The function ``name`` gave ``out``."""

    def end(self) -> None:
        """The module's forward is over."""


class Listening(TorchFunctionMode):  # type: ignore[misc, unused-ignore]
    """The mode: hands functions to ``listener``, and their names to ``ran`` where it is a list."""

    def __init__(self) -> None:
        super().__init__()
        self.listener: Listener | None = None
        self.ran: list[str] | None = None
        self.quiet = False

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        listener = self.listener
        if self.quiet or (listener is None and self.ran is None):
            return func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if listener is not None:
            listener.before(name, args)
        out = func(*args, **(kwargs or {}))
        if self.ran is not None and name != "__get__":
            self.ran.append(name)
        if listener is not None:
            listener.after(name, args, out)
        return out

    @contextmanager
    def silent(self) -> Iterator[None]:
        """While a hook works on a value, its own functions are nobody's."""
        self.quiet = True
        try:
            yield
        finally:
            self.quiet = False


class Rotation(Listener):
    """qrope and k: the two sums of the rotation, queries first, or with a partly rotated head the
    two concatenations after them. attn of a gated attention: the factor of the gate's sigmoid.
    Starts after v_proj, the last module before the rotation."""

    def __init__(self, module: Any, size: Size, offer: Offer) -> None:
        super().__init__(module, size, offer)
        self.wanted, self.name, self.sums = ["qrope", "k"], "add", 0
        self.gate: Tensor = None

    def before(self, name: str, args: Sequence[Any]) -> None:
        if name == "mul" and self.gate is not None and args[1] is self.gate:
            made, self.gate = args[0], None
            shape = (-1, self.module.head_dim)
            self.offer("attn", lambda: rows_of(made, self.size, shape))

    def after(self, name: str, args: Sequence[Any], out: Any) -> None:
        if name == "sigmoid" and not self.wanted:
            self.gate = out
        if name != self.name or not self.wanted:
            return
        if name == "add" and out.shape[-1] != self.module.head_dim:
            self.sums += 1
            self.name = "cat" if self.sums == 2 else "add"
            return
        made = out.transpose(1, 2)
        self.offer(self.wanted.pop(0), lambda: Value((made,), tuple(made.shape[2:])))


class Recurrence(Listener):
    """conv, hist, beta, g, qn, kn and s of a Gated DeltaNet, in the order its forward makes them:
    silu, sigmoid, softplus and the log decay, the norms of q and k (rsqrt), the scale of q."""

    def __init__(self, module: Any, size: Size, offer: Offer) -> None:
        super().__init__(module, size, offer)
        self.read: Tensor = None  # what the convolution reads, [B, C, L]
        self.state: Tensor = None  # the cache's columns, [B, C, width]
        self.awaits = "conv"
        self.root: Tensor = None
        self.normed: list[Tensor] = []

    def after(self, name: str, args: Sequence[Any], out: Any) -> None:
        hear = getattr(self, f"_{name}", None)
        if hear is not None:
            hear(args, out)

    def _conv1d(self, args: Sequence[Any], out: Tensor) -> None:
        self.read = args[0]

    def _silu(self, args: Sequence[Any], out: Tensor) -> None:
        if self.awaits != "conv":
            return
        self.awaits = "beta"
        made = out[..., -self.size[1] :].transpose(1, 2)
        self.offer("conv", lambda: Value((made,), (-1,)))
        self.offer("hist", lambda: self._history(self.read, self.state))

    def _history(self, read: Tensor, state: Tensor) -> Value:
        """Columns before the next one, of every token; the last token's stand in the cache too."""
        tokens, width = self.size[1], self.module.conv_kernel_size - 1
        short = max(0, tokens + width - 1 - read.shape[-1])
        padded = torch.nn.functional.pad(read, (short, 0))[..., -(tokens + width - 1) :]
        windows = padded.unfold(-1, width, 1).permute(0, 2, 3, 1).contiguous()  # [B, T, width, C]
        sinks: tuple[Any, ...] = ()
        if state is not None:
            last = (windows[:, -1:], state[..., -width:].transpose(1, 2)[:, None])
            sinks = tuple((tokens - 1, (each,)) for each in last)
        return Value((windows,), tuple(windows.shape[2:]), sinks=sinks)

    def _sigmoid(self, args: Sequence[Any], out: Tensor) -> None:
        if self.awaits == "beta":
            self.awaits = "softplus"
            self.offer("beta", lambda: rows_of(out, self.size, (-1,)))

    def _softplus(self, args: Sequence[Any], out: Tensor) -> None:
        if self.awaits == "softplus":
            self.awaits = "decay"

    def _rsqrt(self, args: Sequence[Any], out: Tensor) -> None:
        if self.awaits == "norms":
            self.root = out

    def _mul(self, args: Sequence[Any], out: Tensor) -> None:
        if self.awaits == "decay":
            self.awaits = "norms"
        elif self.root is not None and args[1] is self.root:
            self.root = None
            self.normed.append(out)
            if len(self.normed) == 2:
                self.awaits = "scale"
                self.offer("kn", lambda: self._heads(out))
        elif self.awaits == "scale":
            self._div(args, out)

    def _div(self, args: Sequence[Any], out: Tensor) -> None:
        if self.awaits == "scale" and args[0] is self.normed[0]:
            self.awaits = "g"
            self.offer("qn", lambda: self._heads(out))

    def _heads(self, made: Tensor) -> Value:
        """made [B, value heads, T, width], each key head repeated: a change goes into all."""
        times = self.module.num_v_heads // self.module.num_k_heads
        views = made.transpose(1, 2).unflatten(2, (-1, times))  # [B, T, key heads, times, width]
        sinks = tuple((0, (views[:, :, :, at],)) for at in range(times))
        return Value((views[:, :, :, 0],), tuple(views[:, :, :, 0].shape[2:]), sinks=sinks)

    def before(self, name: str, args: Sequence[Any]) -> None:
        """The chunked rule adds log decays (cumsum) and never makes the decay of one token: what
        it reads [B, value heads, chunks, length] is shown as the decay, and cannot be changed."""
        if name == "cumsum" and self.awaits == "g":
            self.awaits = ""
            logs = args[0].flatten(2)[..., : self.size[1]].transpose(1, 2)
            self.offer("g", lambda: Value((logs,), (-1,), read=torch.exp, sinks=()))

    def _exp(self, args: Sequence[Any], out: Tensor) -> None:
        """The recurrent rule: the decay of its one token, [B, value heads]."""
        if self.awaits == "g" and self.size[1] == 1:
            self.awaits = ""
            self.offer("g", lambda: Value((out[:, None],), (-1,)))

    def _copy_(self, args: Sequence[Any], out: Tensor) -> None:
        if out.ndim == 3:
            self.state = out
        elif out.ndim == 4:
            last = self.size[1] - 1
            self.offer("s", lambda: Value((out[:, None],), tuple(out.shape[1:]), first=last))


class Experts(Listener):
    """gate, up, act and down of the chosen experts: the product that is halved (chunk), the first
    product of two values, and the factor of the second one. Its rows are tokens by rank, sorted by
    expert (sort), or some of them for each expert in turn (where): these cannot be changed."""

    def __init__(self, module: Any, size: Size, offer: Offer, ranks: int) -> None:
        super().__init__(module, size, offer)
        self.ranks = ranks
        self.order: Tensor = None
        self.piece: Tensor = None  # (rank, token) of the rows of one expert
        self.pieces: dict[str, Tensor] = {}
        self.halved, self.done = False, False

    def before(self, name: str, args: Sequence[Any]) -> None:
        if name == "chunk" and not self.done:
            width = args[0].shape[-1] // 2
            self._give("gate", args[0][:, :width])
            self._give("up", args[0][:, width:])
            self.halved = True
        elif name == "mul" and self.done:
            self.done = False
            self._give("down", args[0])

    def after(self, name: str, args: Sequence[Any], out: Any) -> None:
        if name == "where":
            self.piece = out
        elif name == "sort":
            self.order = torch.argsort(out[1]).view(*self.size, self.ranks)
        elif name == "mul" and self.halved:
            self.halved, self.done = False, True
            self._give("act", out)

    def _give(self, field: str, rows: Tensor) -> None:
        """rows [B*T*ranks, width] in the implementation's order, or those of one expert."""
        shape = (self.ranks, rows.shape[-1])
        if self.piece is not None:
            if field not in self.pieces:
                self.pieces[field] = rows.new_zeros((self.size[0] * self.size[1], *shape))
            self.pieces[field][self.piece[1], self.piece[0]] = rows
        elif self.order is not None:
            self.offer(field, lambda: Value((rows,), shape, order=self.order))
        else:
            self.offer(field, lambda: Value((rows.unflatten(0, (*self.size, -1)),), shape))

    def end(self) -> None:
        for field, made in self.pieces.items():
            whole = made.unflatten(0, self.size)
            self.offer(field, partial(Value, (whole,), tuple(whole.shape[2:]), sinks=()))


class SharedGate(Listener):
    """gs: the sigmoid after the shared expert's gate, where this starts."""

    def after(self, name: str, args: Sequence[Any], out: Any) -> None:
        if name == "sigmoid" and self.module is not None:
            self.module = None
            self.offer("gs", lambda: rows_of(out, self.size, (-1,), flat=True))
