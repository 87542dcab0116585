"""What a gate runs: two sides, seeds, sizes, rounds; what it refuses before anything runs."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

from parity.errors import InputError
from parity.model.model import Model
from parity.runs.run import Run
from parity.spec import EngineSpec, FileSpec, ProgramSpec, Runnable, Spec, parse_spec
from parity.variants import VARIANTS

FEWEST_SEEDS = 3
FEWEST_SIZES = 2
LEAST_CONFIDENCE = 0.95
_LIST = re.compile(r"[+-]?[A-Za-z_]\w*(?:,[+-]?[A-Za-z_]\w*|[+-][A-Za-z_]\w*)*", re.ASCII)
_CHANGE = re.compile(r"([+-]?)(\w+)", re.ASCII)


@dataclass(frozen=True)
class Settings:
    """``runs``: one a seed, each with the prompt and the tokens to decode. ``sizes``: values of M.
    ``rounds``: timed pairs, over all seeds. ``confidence``: of the interval."""

    runs: tuple[Run, ...]
    sizes: tuple[int, ...]
    rounds: int
    confidence: Fraction

    @property
    def seeds(self) -> list[int]:
        """The seed of each run's weights and prompt."""
        return [seed_of(run.model) for run in self.runs]

    def rounds_of(self, index: int) -> int:
        """Timed pairs of the run at ``index``: as even as they can be shared out."""
        each, more = divmod(self.rounds, len(self.runs))
        return each + (index < more)

    def __post_init__(self) -> None:
        _check_counts(self)
        if not LEAST_CONFIDENCE <= self.confidence < 1:
            raise InputError(
                f"--confidence {float(self.confidence):.6g}: a gate asks for 0.95 or more, below 1",
                "leave it out for 0.95",
            )


def _check_counts(settings: Settings) -> None:
    seeds, sizes, steps = len(settings.runs), settings.sizes, settings.runs[0].n
    if seeds < FEWEST_SEEDS:
        raise InputError(
            f"--seeds {seeds}: that says too little", f"give --seeds {FEWEST_SEEDS} or more"
        )
    if len(sizes) < FEWEST_SIZES:
        raise InputError(
            f"--m {','.join(map(str, sizes))}: that says too little", "write --m 1,2,4,8"
        )
    if max(sizes) > steps:
        raise InputError(
            f"--n {steps} with --m {max(sizes)}: no forward has {max(sizes)} rows",
            f"give --n {max(sizes)} or more, or a smaller --m",
        )
    if settings.rounds < seeds:
        raise InputError(
            f"--rounds {settings.rounds} with --seeds {seeds}: not every seed is timed",
            f"give --rounds {seeds} or more",
        )


def seed_of(model: Model) -> int:
    """The seed a model's weights are drawn from, 0 where it has none."""
    return int(getattr(model, "seed", 0))


def candidate_spec(
    text: str, base: Runnable, installed: Collection[str], own: Collection[str] = ()
) -> Runnable:
    """The side of ``--fast``: an engine or program of its own, or variants put onto ``base``.

    ``two_pass`` and ``+two_pass`` put a variant on, ``-two_pass`` takes it off, a comma stands
    between two. ``own``: variants that the base's engine brings itself. Raises InputError for what
    is neither, and for a variant that stands twice.
    """
    if not text:
        raise InputError("--fast names nothing", "name variants or an engine")
    known = list(dict.fromkeys([*VARIANTS, *own]))
    if not _is_list(text, known, installed):
        return _engine(text, parse_spec(text, installed))
    if isinstance(base, ProgramSpec):
        raise InputError(f"--fast {text}: the base {base.text} has no variants", "name an engine")
    changes = _CHANGE.findall(text)
    _check_variants(text, [name for _, name in changes], known, installed)
    plus, minus = set(base.plus), set(base.minus)
    for sign, name in changes:
        off, on = (plus, minus) if sign == "-" else (minus, plus)
        # What the base itself puts on or takes off is undone; else the tier's own is changed.
        if name in off:
            off.discard(name)
        else:
            on.add(name)
    return _rewritten(base, plus, minus)


def _is_list(text: str, known: Collection[str], installed: Collection[str]) -> bool:
    """Whether ``text`` is meant as variants: it begins with a sign or a variant, or it is words
    of which the first is no engine either."""
    if text.startswith(("+", "-")) and _LIST.fullmatch(text) is None:
        raise InputError(f"--fast {text}: not a list of variants", "write --fast=+fma,-two_pass")
    words = text.split(",")
    if text.startswith(("+", "-")) or words[0] in known:
        return True
    return all(word.isidentifier() for word in words) and words[0] not in installed


def _engine(text: str, spec: Spec) -> Runnable:
    if isinstance(spec, FileSpec):
        raise InputError(
            f"--fast {text}: not an engine: it cannot be timed",
            "name an engine or variants; parity engines lists them",
        )
    return spec


def _check_variants(
    text: str, names: list[str], known: Collection[str], installed: Collection[str]
) -> None:
    for at, name in enumerate(names):
        if name not in known:
            near = difflib.get_close_matches(name, [*known, *installed], 1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise InputError(
                f"--fast {text}: {name!r} is no variant and no engine",
                f"{hint}variants: {', '.join(known)}; engines: {', '.join(installed)}",
            )
        if name in names[:at]:
            raise InputError(f"--fast {text}: {name} stands twice", "name it once")


def _rewritten(base: EngineSpec, plus: Iterable[str], minus: Iterable[str]) -> EngineSpec:
    """``base`` with other variants, and the text that chooses just that."""
    signed = [f"{sign}{name}" for sign, names in (("+", plus), ("-", minus)) for name in names]
    signed.sort(key=lambda word: (word[0], word[1:]))
    options = [f"@{name}={value}" if value else f"@{name}" for name, value in base.options.items()]
    tier = f":{base.tier}" if base.tier else ""
    text = "".join([base.name, tier, *signed, *options])
    return replace(base, text=text, plus=frozenset(plus), minus=frozenset(minus))
