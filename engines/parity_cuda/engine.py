"""The device engines: one class over a backend; ``cuda`` opens CuPy, ``emu`` the emulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from parity import __version__
from parity.builds.provenance import MASK
from parity.dump import TensorType
from parity.errors import InputError, ParityBug
from parity.fnv import BASES
from parity.model.checks import check_function, check_rows, check_tokens, no_mark
from parity.model.memory import DEVICE, HOST, Room, check_room
from parity.model.model import Model
from parity.protocol import EngineSettings, Plan, Step
from parity.variants import TIERS, VARIANTS, variant_mask
from parity_cuda.backend import Backend, Buffer
from parity_cuda.decoder import Decoder
from parity_cuda.graph import Graphs, eager, moves
from parity_cuda.own_functions import own_values
from parity_cuda.selftest import check_arithmetic
from parity_cuda.sources import require_loaded_sources
from parity_cuda.state import State
from parity_cuda.tap import Arena, Tap
from parity_cuda.weights import upload_tensors, weight_digests

if TYPE_CHECKING:
    from parity.order.sums import SumAsk


class DeviceEngine:
    """CUDA kernels on one backend: op by op or fused, launched one by one or as recorded steps."""

    name: ClassVar[str]
    place: ClassVar[str] = DEVICE  # where models are held
    version: ClassVar[str] = __version__
    protocol: ClassVar[int] = 2
    tiers: ClassVar[tuple[str, ...]] = tuple(TIERS)
    variants: ClassVar[tuple[str, ...]] = VARIANTS
    capabilities: ClassVar[frozenset[str]] = frozenset(
        {
            *("state", "capture", "inject", "replay", "trace", "elementary"),
            *("rows", "rollback", "counters"),
        }
    )

    def __init__(self, settings: EngineSettings) -> None:
        require_loaded_sources()
        self.settings = settings
        self.backend = self.open(settings)
        check_arithmetic(self.backend, self.name, variant_mask(settings.variants))
        self.positions = 0
        self.length = 0
        self._model: Model | None = None
        self._marked: int | None = None
        self._copies: list[Buffer] | None = None

    def open(self, settings: EngineSettings) -> Backend:
        """The opened device with its kernels."""
        raise NotImplementedError

    def describe(self) -> Mapping[str, str]:
        """Device, driver, compiler, options, digests of the kernels' texts and of their compiled
        code; the mask, which a tier's code knows and other code is asked for; emulated or not."""
        return {**self.backend.info(), MASK: f"{variant_mask(self.settings.variants):04x}"}

    def room(self) -> Room:
        """Where models are held."""
        return Room(self.place, self.backend.free_bytes())

    def load(self, model: Model, positions: int) -> None:
        """Upload every tensor, then make a cache of ``positions`` rows."""
        check_room(self.name, model, positions, self.room())
        self._tensors = upload_tensors(self.backend, model)
        self._model = model
        self._copies = None
        mask = variant_mask(self.settings.variants)
        self._decoder = Decoder(self.backend, model.config, self._tensors, positions, mask)
        self._arena = Arena(self.backend, model.config)
        self._graphs = Graphs(self.backend, self._arena)
        self._state = State(self.backend, model.config, positions)
        self.positions = positions
        self.reset()

    def weights(self) -> Mapping[str, tuple[TensorType, int]]:
        """Type and digest of every tensor, hashed on the device."""
        return weight_digests(self.backend, self._tensors, BASES["fnv1a64"])

    def reset(self) -> None:
        """Back to position 0: S and hist at +0.0; rows past the length are never read."""
        self._state.reset()
        self.length, self._marked = 0, None

    def prefill(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        """Single steps, token by token."""
        check_tokens(self.model.config, tokens, self.length, self.positions)
        steps = [self.step(token, plan) for token in tokens]
        return steps if plan is not None else steps[-1:]

    def step(self, token: int, plan: Plan | None = None) -> Step:
        """One forward of one row, then one copy to the host."""
        check_tokens(self.model.config, [token], self.length, self.positions)
        return self._forward([token], plan)[0]

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        """M rows in one forward: row by row the bits of M single steps (contract 6). Op by op, one
        row too: what it launches is to be held against what M rows launch."""
        check_rows(tokens)
        check_tokens(self.model.config, tokens, self.length, self.positions)
        if len(tokens) == 1 and self.backend.fuse:
            return self._forward(tokens, plan, fuse=False)
        return self._forward(tokens, plan)

    def _forward(
        self, tokens: Sequence[int], plan: Plan | None, *, fuse: bool = True
    ) -> list[Step]:
        rows, pos = len(tokens), self.length
        fused = fuse and self.backend.fuse and rows == 1 and not moves(plan)

        def forward(tap: Tap) -> None:
            logits = self._arena.logits(rows)
            self._decoder.forward(rows, pos, self._state, tap, logits, fused)

        self._decoder.feed(tokens, pos)
        # What is recorded of one row is the fused step, where there is one.
        if fuse:
            steps = self._graphs.steps(rows, plan, pos, forward)
        else:
            steps = eager(Tap(self.backend, self._arena, plan, rows), pos, forward)
        self.length += rows
        return steps

    def elementary(self, function: str, x: np.ndarray) -> np.ndarray:
        """What the kernels call under this engine's variants (contract 4, 5)."""
        check_function(self.name, function)
        return own_values(self.backend, function, x, variant_mask(self.settings.variants))

    def counters(self) -> Mapping[str, int]:
        """Launches since the engine was opened, by kernel name."""
        return dict(self.backend.counts)

    def mark(self) -> None:
        """Remember the state: S and hist are copied on the device, attention by its length."""
        recurrent = list(self._state.recurrent())
        if self._copies is None:
            self._copies = [
                self.backend.empty(buffer.shape, buffer.dtype.type) for buffer in recurrent
            ]
        for copy, buffer in zip(self._copies, recurrent, strict=True):
            self.backend.copy(copy, buffer)
        self._marked = self.length

    def rollback(self) -> None:
        """Go back to the mark, once; without one nothing changes."""
        if self._marked is None or self._copies is None:
            raise no_mark()
        for copy, buffer in zip(self._copies, self._state.recurrent(), strict=True):
            self.backend.copy(buffer, copy)
        self.length, self._marked = self._marked, None

    def embedded(self, token: int) -> np.ndarray:
        """What a token is embedded as, float32[hidden]."""
        return self._decoder.embedded(token)

    def sums_of(self, field: str, layer: int | None, rows: int) -> Sequence[SumAsk]:
        """The sums that make a field in a forward of ``rows`` rows, as this engine runs them."""
        # Of a red report alone: no run waits for these imports.
        from parity.order.own.fields import Made
        from parity_cuda.own_sums import key_of, launcher

        decoder, variants = self._decoder, frozenset(self.settings.variants)
        weights = None if layer is None else decoder.layers[layer]
        given = (key_of(self.backend), launcher(decoder.ops), decoder.config, variants)
        return Made(self.name, *given, weights, decoder.lm_head, rows).sums(field)

    @property
    def model(self) -> Model:
        """The loaded model."""
        if self._model is None:
            raise ParityBug(f"{self.name}: a step was asked for before a model was loaded")
        return self._model

    def read_state(self) -> dict[str, np.ndarray]:
        """Lengths and the written rows of every layer."""
        return {
            "lengths": np.array([self.length], np.int32),
            **self._state.read(self.length),
        }

    def write_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over lengths and rows; refuses a state that is longer than the cache."""
        length = int(state["lengths"][0])
        if length > self.positions:
            raise InputError(
                f"a state of {length} positions does not fit a KV cache of {self.positions}",
                "load the model with more positions",
            )
        self._state.write(state, length)
        self.length, self._marked = length, None


class CudaEngine(DeviceEngine):
    """The kernels on an NVIDIA device."""

    name: ClassVar[str] = "cuda"

    def open(self, settings: EngineSettings) -> Backend:
        """Device 0 through CuPy."""
        from parity_cuda.cupy_backend import CupyBackend

        return CupyBackend(settings)


class EmuEngine(DeviceEngine):
    """The same kernels' text, compiled for the CPU."""

    name: ClassVar[str] = "emu"
    place: ClassVar[str] = HOST

    def open(self, settings: EngineSettings) -> Backend:
        """The emulator, built on first use."""
        from parity_cuda.emu_backend import EmuBackend

        return EmuBackend(settings)
