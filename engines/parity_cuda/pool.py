"""Named device buffers of a forward, made on first use, used by every layer."""

from __future__ import annotations

from parity_cuda.backend import Backend, Buffer


class Pool:
    """Buffers for up to ``cap`` rows. The pool of one row and that of many are two: a forward of
    one row does not change because M rows were used."""

    def __init__(self, backend: Backend, cap: int) -> None:
        self.backend, self.cap = backend, cap
        self._buffers: dict[str, Buffer] = {}

    def take(self, name: str, rows: int, shape: tuple[int, ...], dtype: type) -> Buffer:
        """The first ``rows`` rows of buffer ``name``, (rows, *shape)."""
        buffer = self._buffers.get(name)
        if buffer is None:
            buffer = self.backend.empty((self.cap, *shape), dtype)
            self._buffers[name] = buffer
        return buffer[:rows]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(int(buffer.nbytes) for buffer in self._buffers.values())
