"""The CPU engine: settings, state and the engine Protocol over the families' forwards."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, ClassVar

import numba
import numpy as np

from parity import __version__
from parity.builds.provenance import COMPILED, MASK, NONE, PACKAGES, packages
from parity.dump import TensorType
from parity.dumps.forms import Forms
from parity.errors import InputError, ParityBug
from parity.fnv import BASES
from parity.model.checks import (
    check_function,
    check_options,
    check_rows,
    check_tokens,
    no_mark,
)
from parity.model.loading import load_tensors
from parity.model.memory import HOST, Room, check_room, free_bytes
from parity.model.model import Model
from parity.protocol import EngineSettings, Plan, Step
from parity.variants import TIERS, VARIANTS, variant_mask
from parity_cpu import jit
from parity_cpu.ahead import compile_ahead
from parity_cpu.code_cache import forget_changed, loaded_code
from parity_cpu.decoder import Decoder
from parity_cpu.own_functions import own_values
from parity_cpu.state import State
from parity_cpu.tap import Tap, digest_of, type_of
from parity_cpu.threads import threads, useful_threads

if TYPE_CHECKING:
    from parity.order.sums import SumAsk


class Engine:
    """Numba reference engine. Rows and heads run in parallel; order is kept."""

    name: ClassVar[str] = "cpu"
    version: ClassVar[str] = __version__
    protocol: ClassVar[int] = 2
    tiers: ClassVar[tuple[str, ...]] = tuple(TIERS)
    variants: ClassVar[tuple[str, ...]] = VARIANTS
    capabilities: ClassVar[frozenset[str]] = frozenset(
        {
            *("state", "capture", "inject", "replay", "trace", "elementary", "borrow"),
            *("rows", "rollback", "counters"),
        }
    )

    # Names of ``@name=value`` in a spec; a subclass may take some.
    options: ClassVar[tuple[str, ...]] = ()
    _announced: ClassVar[bool] = False  # whether this process said that it compiles

    def __init__(self, settings: EngineSettings) -> None:
        check_options(self.name, settings.options, self.options)
        self.settings = settings
        self.positions = 0
        self.length = 0
        self._model: Model | None = None
        self._marked: int | None = None
        self._copies: list[np.ndarray] | None = None
        self._tensors: dict[str, np.ndarray] = {}
        self._forms = Forms()

    def describe(self) -> Mapping[str, str]:
        """Processor, compiler, the digests of the ops' sources and of the code that was called."""
        called = self._decoder.call.ops.values() if self._model is not None else ()
        return {
            "device": f"{platform.processor() or platform.machine()}, {os.cpu_count()} threads",
            "driver": "none",
            "compiler": f"Numba {numba.__version__}",
            "options": "fastmath=False error_model=numpy",
            "kernels": jit.source_digest()[:16],
            COMPILED: loaded_code(called) or NONE,
            MASK: f"{variant_mask(self.settings.variants):04x}",
            PACKAGES: packages(jit.COMPILERS),
            "emulated": "no",
        }

    def room(self) -> Room:
        """Where models are held."""
        return Room(HOST, free_bytes())

    def load(self, model: Model, positions: int) -> None:
        """Load every tensor, then make a cache of ``positions`` rows."""
        check_room(self.name, model, positions, self.room())
        jit.require_loaded_sources()
        forget_changed()
        cold = self._announce_compiling()
        self._tensors = dict(load_tensors(model))
        self._model = model
        self._copies = None
        self._decoder = Decoder(model.config, self._tensors, variant_mask(self.settings.variants))
        self.positions = positions
        self._state = State(model.config, positions)
        self._threads = useful_threads(model.config)
        if cold:
            compile_ahead(self._decoder)
        self.reset()

    def _announce_compiling(self) -> bool:
        """Say once in a process that the first forward waits for the compiler, and whether it was
        said: where nothing can be kept the cache never becomes warm, yet nothing is compiled
        twice."""
        notes = self.settings.notes
        if notes is None or Engine._announced or jit.cache_is_warm():
            return False
        Engine._announced = True
        notes.note("compiling the CPU engine (first run on this machine, about 10 s)")
        return True

    def weights(self) -> Mapping[str, tuple[TensorType, int]]:
        """Type and digest of every tensor held."""
        basis = BASES["fnv1a64"]
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # one hash is a chain of its bytes
            hashes = pool.map(lambda array: digest_of(array, basis), self._tensors.values())
            told = zip(self._tensors.items(), hashes, strict=True)
            return {name: (type_of(array), digest) for (name, array), digest in told}

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
        """One forward of one row."""
        check_tokens(self.model.config, [token], self.length, self.positions)
        return self._forward([token], plan)[0]

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        """M rows in one forward: row by row the bits of M single steps (contract 6)."""
        check_rows(tokens)
        check_tokens(self.model.config, tokens, self.length, self.positions)
        return self._forward(tokens, plan)

    def _forward(self, tokens: Sequence[int], plan: Plan | None) -> list[Step]:
        tap = Tap(plan, self._decoder.call)
        with threads(self._threads):
            logits = self._decoder.forward(tokens, self.length, self._state, tap)
        steps = tap.steps(logits, self.length, self._forms)
        self.length += len(tokens)
        return steps

    def elementary(self, function: str, x: np.ndarray) -> np.ndarray:
        """What the ops call under this engine's variants (contract 4, 5)."""
        check_function(self.name, function)
        return own_values(function, x, variant_mask(self.settings.variants))

    def counters(self) -> Mapping[str, int]:
        """Op calls since the load, by name."""
        return dict(self._decoder.call.counts)

    def mark(self) -> None:
        """Remember the state: S and hist are copied, attention by its length alone."""
        if self._copies is None:
            self._copies = [np.empty_like(array) for array in self._state.recurrent()]
        for copy, array in zip(self._copies, self._state.recurrent(), strict=True):
            copy[...] = array
        self._marked = self.length

    def rollback(self) -> None:
        """Go back to the mark, once; without one nothing changes."""
        if self._marked is None or self._copies is None:
            raise no_mark()
        for copy, array in zip(self._copies, self._state.recurrent(), strict=True):
            array[...] = copy
        self.length, self._marked = self._marked, None

    def embedded(self, token: int) -> np.ndarray:
        """What a token is embedded as, float32[hidden]."""
        return self._decoder.embedded(token)

    def sums_of(self, field: str, layer: int | None, rows: int) -> Sequence[SumAsk]:
        """The sums that make a field in a forward of ``rows`` rows, as this engine runs them."""
        # Of a red report alone: no run waits for these imports.
        from parity.order.own.fields import Made
        from parity_cpu.sums import key, launch

        decoder, variants = self._decoder, frozenset(self.settings.variants)
        weights = None if layer is None else decoder.layers[layer]
        made = Made(
            self.name, key(), launch, decoder.config, variants, weights, decoder.lm_head, rows
        )
        return made.sums(field)

    @property
    def model(self) -> Model:
        """The loaded model."""
        if self._model is None:
            raise ParityBug("cpu: a step was asked for before a model was loaded")
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
