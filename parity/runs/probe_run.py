"""Run a probe on the engine that a spec names: what it needs, what ran, what it found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from parity.builds.provenance import engine_facts
from parity.errors import InputError
from parity.registry import PROBES, find
from parity.runs.probe import Ask, Found, Probe
from parity.status import Verdict

if TYPE_CHECKING:
    from parity.model.model import Model
    from parity.progress import Progress
    from parity.runs.run import Side
    from parity.spec import Runnable


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
) -> Ask:
    """Settings of the probes. ``only``: every layer of a hybrid is that kind; it implies
    hybrid-tiny. ``model`` to ``tokenizer``: as ``parity.runs.settings.run_settings``; the prompt
    stands first, and the seeds draw what follows it. Raises InputError for what the KV cache has no
    room for."""
    from parity.model.checks import check_tokens
    from parity.model.opening import models_of
    from parity.runs.prompts import Prompt, read_prompt

    if seeds < 1:
        raise InputError(f"--seeds {seeds}: nothing to run", "give --seeds 1 or more")
    name = model or ("hybrid-tiny" if only else "moe-tiny")
    models = models_of(name, range(seed, seed + seeds), weights=weights, only=only)
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
    from parity.runs.run import Run
    from parity.runs.sides import class_of, open_side

    probe: Probe = find(PROBES, name).load()()
    engine = class_of(spec)
    missing = [need for need in probe.needs if need not in engine.capabilities]
    if missing:
        return _not_run(probe, spec, missing)

    last: list[Side] = []

    def opened(model: Model, positions: int) -> Side:
        last.clear()  # there may be no room for two
        run = Run(model=model, prompt=(0,) * positions, n=0)
        last.append(open_side("engine", spec, run, progress))
        return last[0]

    found = probe.run(opened, ask)
    found.about = engine_facts(last[0].engine) if last else {}
    found.claim = probe.claim
    return _attributed(found, spec, ask, found.about)


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
