"""Run a probe on the engine that a spec names: what it needs, what ran, what it found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from parity.builds.provenance import engine_facts
from parity.errors import InputError, NotRunError
from parity.model.config import DEFAULT_PRESET
from parity.registry import PROBES, find
from parity.runs.probe import Again, Ask, Found, Probe
from parity.spec import EngineSpec
from parity.status import Verdict

if TYPE_CHECKING:
    from parity.model.model import Model
    from parity.progress import Progress
    from parity.runs.run import Side
    from parity.spec import Runnable, Spec


def probe_settings(
    *,
    sizes: Sequence[int],
    starts: Sequence[int],
    model: str = "",
    weights: str | None = None,
    only: str = "",
    seed: int = 7,
    seeds: int = 1,
    tokens: Sequence[int] | None = None,
    prompt: str | None = None,
    prompt_file: Path | None = None,
    tokenizer: Path | None = None,
    chunks: Sequence[int] = (),
    reproduce: str = "",
    sides: Sequence[Spec] = (),
) -> Ask:
    """Settings of the probes. ``only``: every layer of a hybrid is that kind; it implies
    hybrid-tiny. ``model`` to ``tokenizer``: as ``parity.runs.settings.run_settings``; the prompt
    stands first, and the seeds draw what follows it. ``sides``: the engine under test, which may
    name the model. Raises InputError for what the KV cache has no
    room for."""
    from parity.model.checks import check_tokens
    from parity.runs.carried import model_text, models_for
    from parity.runs.prompts import Prompt, read_prompt

    if seeds < 1:
        raise InputError(f"--seeds {seeds}: nothing to run", "give --seeds 1 or more")
    name = model_text(sides, model, "hybrid-tiny" if only else DEFAULT_PRESET)
    models = models_for(sides, name, range(seed, seed + seeds), weights=weights, only=only)
    given = {"tokens": tokens, "text": prompt, "file": prompt_file, "tokenizer": tokenizer}
    first = read_prompt(models[0], **given) or Prompt(())  # type: ignore[arg-type]
    check_tokens(models[0].config, first.ids, 0, models[0].config.context)
    ask = Ask(
        tuple(sizes),
        tuple(starts),
        models,
        chunks=tuple(chunks),
        reproduce=reproduce,
        prompt=first.ids,
        tokenizer=first.tokenizer,
    )
    _check_room(ask)
    return ask


def _check_room(ask: Ask) -> None:
    """Refuse what the KV cache has no room for: the furthest block and the steps after it."""
    config = ask.models[0].config
    last = max(ask.starts) + max(ask.sizes) + ask.more - 1
    if last >= config.context:
        raise InputError(
            f"--pos {max(ask.starts)} with --m {max(ask.sizes)} and {ask.more} further steps: "
            f"position {last} is past the KV cache of {config.name} ({config.context:,} positions)",
            "give a smaller --pos or --m",
        )


def run_probe(name: str, spec: Runnable, ask: Ask, progress: Progress) -> Found:
    """What the probe called ``name`` found; not run, naming what is missing, before any model is
    loaded, where the engine lacks a capability."""
    from parity.runs.sides import class_of

    probe: Probe = find(PROBES, name).load()()
    engine = class_of(spec)
    missing = [need for need in probe.needs if need not in engine.capabilities]
    if missing:
        return _not_run(probe, spec, missing)
    found = _run(probe, spec, ask, progress)
    if other := _invariant_spec(spec, found):
        settings, again = other
        _tell_again(found, settings, _run(probe, again, ask, progress))
    return found


def _run(probe: Probe, spec: Runnable, ask: Ask, progress: Progress) -> Found:
    """What the probe found on a new engine of ``spec``."""
    from parity.runs.run import Run
    from parity.runs.sides import open_side

    last: list[Side] = []

    def opened(model: Model, positions: int) -> Side:
        last.clear()  # there may be no room for two
        run = Run(model=model, prompt=(0,) * positions, n=0)
        last.append(open_side("engine", spec, run, progress))
        _require_loaded(probe, spec, last[0])
        return last[0]

    found = probe.run(opened, ask)
    found.about = engine_facts(last[0].engine) if last else {}
    found.claim = probe.claim
    return _attributed(found, spec, ask, found.about)


def _require_loaded(probe: Probe, spec: Runnable, side: Side) -> None:
    """NotRunError where the loaded engine lacks what its class offers, as its model cannot."""
    missing = next((need for need in probe.needs if not side.has(need)), "")
    if missing:
        reasons: Mapping[str, str] = getattr(side.engine, "lacks", {})
        why = f": {reasons[missing]}" if missing in reasons else ""
        text = f"{spec.text} lacks the capability {missing!r} with this model"
        raise NotRunError(f"{text}, needed for {probe.name}{why}", "choose another model")


def _invariant_spec(spec: Runnable, found: Found) -> tuple[str, EngineSpec] | None:
    """The settings, and the engine with them, under which it means no row to depend on its batch
    (``invariant`` of its class); None where it has none, where they are on, or where it is not
    red."""
    from parity.runs.sides import class_of

    if found.verdict is not Verdict.DIVERGED or found.smallest is None:
        return None
    if not isinstance(spec, EngineSpec) or ((given := spec.given) and not isinstance(given, type)):
        return None
    options: Mapping[str, str] = getattr(class_of(spec), "invariant", {})
    if not options.items() - spec.options.items():
        return None
    settings = ",".join(f"{name}={value}" for name, value in options.items())
    return settings, replace(spec, options={**spec.options, **options})


def _tell_again(found: Found, settings: str, other: Found) -> None:
    """What the same check found under ``settings``; the verdict of ``found`` stays."""
    found.again = Again(settings, other.verdict, other.headline, other.first, other.smallest)
    letter = "B" if found.name == "batch" else "M"
    if other.verdict is Verdict.SAME:
        text = f"no {letter} differs, {other.headline}"
    elif other.smallest is None:
        text = f"{other.verdict.replace('_', ' ')}, {other.headline}"
    else:
        text = f"it differs too, {other.headline}"
    made = other.about.get(settings.partition("=")[0], "")
    told = f" ({made})" if made else ""
    found.facts.append(("settings", f"with {settings}{told}: {text}"))


def _attributed(found: Found, spec: Runnable, ask: Ask, about: dict[str, str]) -> Found:
    """Say what ran: a result that names no engine can be pasted anywhere."""
    emulated = about.get("emulated") == "yes"
    if emulated:
        found.headline += ", emulated"
        found.brief += ", emulated" if found.brief else ""
    parts = [spec.text, about.get("version", ""), about.get("device", "")]
    parts.append("emulated" if emulated else "")
    models = about.get("model") or _models(ask)
    found.facts += [("engine", "  ".join(filter(None, parts))), ("model", models)]
    return found


def _models(ask: Ask) -> str:
    """``moe-tiny seed 7, moe-tiny seed 8``; of a file, whose weights no seed changes, its prompts:
    ``a.gguf, prompts of seeds 7, 8``."""
    labels = list(dict.fromkeys(model.label for model in ask.models))
    if len(labels) < len(ask.models):
        seeds = ", ".join(str(getattr(model, "seed", 0)) for model in ask.models)
        labels.append(f"prompts of seeds {seeds}")
    return ", ".join(labels)


def _not_run(probe: Probe, spec: Runnable, missing: list[str]) -> Found:
    what = f"capability {missing[0]!r}"
    if len(missing) > 1:
        what = f"capabilities {', '.join(map(repr, missing))}"
    text = f"{spec.text} lacks the {what}, needed for {probe.name}"
    hint = ("next", "parity engines lists what each engine offers")
    return Found(probe.name, Verdict.NOT_RUN, text, [hint], brief=text, claim=probe.claim)
