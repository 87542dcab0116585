"""Named device buffers of a forward, made on first use: each layer has its own, so that the tap can
hash every value where it lies, in one launch at the end of the step."""

from __future__ import annotations

from parity_cuda.backend import Backend, Buffer


class Pool:
    """Buffers for up to ``cap`` rows. The pool of one row and that of many are two: a forward of
    one row does not change because M rows were used. ``layer``: whose buffers these are, None
    outside the layers."""

    def __init__(self, backend: Backend, cap: int) -> None:
        self.backend, self.cap = backend, cap
        self.layer: int | None = None
        self._buffers: dict[tuple[int | None, str], Buffer] = {}

    def take(self, name: str, rows: int, shape: tuple[int, ...], dtype: type) -> Buffer:
        """The first ``rows`` rows of buffer ``name``, (rows, *shape)."""
        buffer = self._buffers.get((self.layer, name))
        if buffer is None:
            buffer = self.backend.empty((self.cap, *shape), dtype)
            self._buffers[self.layer, name] = buffer
        return buffer[:rows]

    def take_shared(self, name: str, rows: int, shape: tuple[int, ...], dtype: type) -> Buffer:
        """The same of a buffer that all layers use: scratch memory, which no tap is offered."""
        layer, self.layer = self.layer, None
        try:
            return self.take(name, rows, shape, dtype)
        finally:
            self.layer = layer

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(int(buffer.nbytes) for buffer in self._buffers.values())
