"""The engine ``hf``: a model of transformers behind the engine Protocol."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from parity import __version__
from parity.errors import InputError, NotRunError, ParityBug
from parity.model.checks import check_rows, check_tokens
from parity.protocol import EngineSettings, Plan, Step
from parity_torch.options import KNOWN, Options, read_options
from parity_torch.requirements import quiet, require_device, require_packages

if TYPE_CHECKING:
    import numpy as np

    from parity.dump import TensorType
    from parity.keys import Key
    from parity.model.memory import Room
    from parity.model.model import Model
    from parity.order.sums import SumAsk
    from parity_torch.cache import Past
    from parity_torch.calls import Calls


class HfEngine:
    """A model of transformers, run as its users run it: whole prompts, then on its cache."""

    name: ClassVar[str] = "hf"
    version: ClassVar[str] = __version__
    protocol: ClassVar[int] = 2
    order: ClassVar[str] = "library"  # of its sums: the library's own, not the contract's
    tiers: ClassVar[tuple[str, ...]] = ("library",)
    variants: ClassVar[tuple[str, ...]] = ()
    options: ClassVar[tuple[str, ...]] = tuple(KNOWN)
    invariant: ClassVar[Mapping[str, str]] = {"invariant": "on"}  # see parity.protocol
    # What the class offers; a loaded engine lacks what its model's cache cannot do.
    capabilities: frozenset[str] = frozenset(
        {
            *("state", "capture", "inject", "replay", "trace"),
            *("rows", "batch", "rollback", "counters"),
        }
    )

    def __init__(self, settings: EngineSettings) -> None:
        self.asked: Options = read_options(settings.options)
        require_packages()
        require_device(self.asked.device)
        self.settings = settings
        self.lacks: dict[str, str] = {}
        self.positions = 0
        self.module: Any = None
        self._model: Model | None = None

    @classmethod
    def open_model(
        cls, text: str, *, seed: int, weights: str | None, options: Mapping[str, str]
    ) -> Model:
        """The model that ``hf:text`` names, before any weight is read: a preset, a folder with
        weights or without, or a GGUF file of float matrices."""
        read_options(options)
        require_packages()
        from parity_torch.opening import open_model

        return open_model(text, seed, weights)

    # --- what it is -------------------------------------------------------------------------------

    def describe(self) -> Mapping[str, str]:
        """Device, versions, dtype, attention, and the settings of torch that bits hang on."""
        from parity_torch.facts import facts_of

        return facts_of(self.asked, self.lacks, self.module)

    def room(self) -> Room:
        """Where models are held, and in how many bytes a weight."""
        from parity_torch.memory import room_of

        return room_of(self.asked)

    def counters(self) -> Mapping[str, int]:
        """Module calls since the load, by the module's path without layer numbers."""
        return dict(self._calls.counts)

    def made_by(self, key: Key) -> str:
        """What makes the value behind a key, by the published map."""
        from parity_torch.naming import made_by

        return made_by(self.module, key)

    def embedded(self, token: int) -> np.ndarray:
        """What the module embeds a token as, in the model's dtype [hidden]."""
        import torch

        from parity_torch.arrays import host

        with self.running():
            ids = torch.tensor([token], device=self.asked.device)
            return host(self.module.get_input_embeddings()(ids)[0])

    def sums_of(self, field: str, layer: int | None, rows: int) -> Sequence[SumAsk]:
        """The linear modules and the RMS norms behind a field; other sums are not probed."""
        from parity_torch.module_sums import module_sums

        return module_sums(self.module, field, layer, rows, self.running)

    # --- loading ----------------------------------------------------------------------------------

    def load(self, model: Model, positions: int) -> None:
        """Load the weights; the library's cache grows, up to ``positions`` rows are admitted."""
        from torch import get_num_threads

        from parity.model.memory import check_room
        from parity_torch.batch import lacks_batch
        from parity_torch.cache import Past
        from parity_torch.calls import Calls
        from parity_torch.loading import load_module, unwrapped
        from parity_torch.maps import is_mapped, map_text
        from parity_torch.memory import refused

        check_room(self.name, model, positions, self.room())
        # Another engine of the process may change torch's own choice later (one OpenMP for both).
        self.asked = replace(self.asked, threads=self.asked.threads or get_num_threads())
        with refused(self.asked, f"loading {model.label}"):
            self.module = load_module(model, self.asked)
        self._model, self.positions = unwrapped(model), positions
        self._taps: Any = None
        self._calls: Calls = Calls(self.module)
        self._past: Past = Past(self.module, model.config)
        self.lacks = dict(self._past.lacks)
        if alone := lacks_batch(self.module):
            self.lacks["batch"] = alone
        self.capabilities = type(self).capabilities - self.lacks.keys()
        if self.settings.notes is not None and not is_mapped(self.module):
            self.settings.notes.note(f"hf: map {map_text(self.module)}")

    def weights(self) -> Mapping[str, tuple[TensorType, int]]:
        """Type and digest of every tensor held."""
        from parity_torch.digests import weights_of

        return weights_of(self.module, self.model)

    @property
    def model(self) -> Model:
        """The loaded model."""
        if self._model is None:
            raise ParityBug("hf: a step was asked for before a model was loaded")
        return self._model

    @property
    def taps(self) -> Any:
        """The taps of the loaded module, made when a plan first asks for them."""
        if self._taps is None:
            from parity_torch.taps import Taps

            notes = self.settings.notes
            self._taps = Taps(self.module, None if notes is None else notes.note)
        return self._taps

    # --- running ----------------------------------------------------------------------------------

    def reset(self) -> None:
        """Forget the sequence and the mark."""
        self._past.reset()

    def prefill(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        """The prompt in one forward, as users feed it; token by token with ``prefill=steps``."""
        self._check(tokens)
        if self.asked.prefill == "steps":
            steps = [self.step(token, plan) for token in tokens]
        else:
            steps = self._forward(tokens, plan) if tokens else []
        return steps if plan is not None else steps[-1:]

    def step(self, token: int, plan: Plan | None = None) -> Step:
        """One token on the cache."""
        self._check([token])
        return self._forward([token], plan)[0]

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        """M tokens in one forward on the cache. The library does not promise the bits of M single
        steps: ``parity isodiff`` tells."""
        check_rows(tokens)
        self._check(tokens)
        return self._forward(tokens, plan)

    def step_batch(
        self, sequences: Sequence[Sequence[int]], plan: Plan | None = None, decode: int = 0
    ) -> list[list[Step]]:
        """Unrelated sequences in one left-padded forward, then ``decode`` tokens of each; one Step
        per own token of each sequence. Afterwards the engine is reset."""
        from parity_torch.batch import run_batch
        from parity_torch.memory import refused

        self._require("batch")
        for tokens in sequences:
            check_tokens(self.model.config, tokens, 0, self.positions)
        self.reset()
        what = (
            f"{len(sequences)} sequences of {max(map(len, sequences), default=0)} tokens or fewer"
        )
        with refused(self.asked, what, self.module), self.running():
            return run_batch(self.module, self.taps, sequences, plan, decode)

    def _check(self, tokens: Sequence[int]) -> None:
        check_tokens(self.model.config, tokens, self._past.length, self.positions)

    def _forward(self, tokens: Sequence[int], plan: Plan | None) -> list[Step]:
        import torch

        from parity_torch.arrays import host
        from parity_torch.memory import refused

        past = self._past
        ids, arguments = past.fed(tokens)
        first = len(ids) - len(tokens)
        what = f"{len(ids)} tokens in one forward, {past.length} before them"
        with (
            refused(self.asked, what, self.module),
            self.running(),
            self._watched(first, plan, tokens) as seen,
        ):
            given = torch.tensor([ids], dtype=torch.long, device=self.asked.device)
            found = self.module(input_ids=given, **arguments).logits[0, first:]
        rows = host(found.float())
        past.advance(tokens)
        return [Step(row) if seen is None else seen.step(at, row) for at, row in enumerate(rows)]

    @contextmanager
    def _watched(self, first: int, plan: Plan | None, tokens: Sequence[int]) -> Iterator[Any]:
        """What the taps see of one forward; None without a plan, where none is attached."""
        if plan is None:
            yield None
            return
        from parity_torch.values import Row

        start = self._past.length
        rows = [Row(start + at, 0, first + at) for at in range(len(tokens))]
        with self.taps.watching(plan, rows) as seen:
            yield seen

    @contextmanager
    def running(self) -> Iterator[None]:
        """torch as the options say, and as it was again afterwards. A forward that fails leaves a
        cache that is half written: the sequence is forgotten."""
        import torch

        from parity_torch.invariant import invariant

        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            stack.enter_context(quiet())
            stack.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(self.asked.threads)
            if self.asked.invariant:
                stack.enter_context(invariant(self.asked.device))
            try:
                yield
            except BaseException:
                self.reset()
                raise

    # --- mark, rollback and state -----------------------------------------------------------------

    def mark(self) -> None:
        """Remember the state: rows by their number, recurrent states by a copy."""
        self._require("rollback")
        self._past.mark()

    def rollback(self) -> None:
        """Go back to the mark, once; without one nothing changes."""
        self._require("rollback")
        self._past.rollback()

    def read_state(self) -> dict[str, np.ndarray]:
        """Lengths, the rows of K and V, and the recurrent states; copies."""
        self._require("state")
        return self._past.read()

    def write_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over what ``read_state`` gave; refuses a state that is longer than the cache."""
        self._require("state")
        length = int(state["lengths"][0])
        if length > self.positions:
            raise InputError(
                f"a state of {length} positions does not fit a KV cache of {self.positions}",
                "load the model with more positions",
            )
        self._past.write(state)

    def _require(self, capability: str) -> None:
        if capability in self.lacks:
            raise NotRunError(
                f"hf: {self.model.label} lacks the capability {capability!r}: "
                f"{self.lacks[capability]}",
                "give a model with a cache of full rows",
            )
