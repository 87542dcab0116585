"""The options of a baseline's run: as they are recorded, read from a header, and given again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from parity.cli.options import make_run
from parity.errors import InputError

if TYPE_CHECKING:
    from parity.dump import Dump
    from parity.runs.run import Run
    from parity.spec import Spec

_LABEL = re.compile(r"(\S+)( f32)? seed ([0-9]{1,20})")  # of a preset that the options can name
_OPTIONS = {"hash_name": "--hash"}  # others are --name
_TEXT = ("prompt", "prompt_file", "tokenizer")  # what a text prompt is given by; its ids are kept


def settled(options: Mapping[str, Any], side: Spec) -> tuple[dict[str, Any], str, Run]:
    """What is recorded of the options of a run by ``side``, where its tokens come from, and the
    run.

    A text prompt is recorded by its ids, and the storage of a preset's matrices by name.
    """
    run = make_run(sides=(side,), **options)
    settings = {name: value for name, value in options.items() if name not in _TEXT}
    if _is_preset(settings["model"]):
        settings["weights"] = run.model.config.weights
    origin = "--tokens"
    if any(options.get(name) is not None for name in _TEXT):
        settings["tokens"] = ",".join(map(str, run.prompt))
        origin = f"text, tokenizer {run.tokenizer}"
    elif settings["tokens"] is None:
        origin = f"seed {settings['seed']}"
    return settings, origin, run


def header_settings(dump: Dump, model: str | None = None) -> dict[str, Any] | None:
    """The options that make the run of a dump again, from its header; None where no options do.

    ``model``: the file that was given for a dump of one, since a header names no path.
    """
    header = dump.header
    prefill, tokens = header["prefill"].split(" "), header["tokens"].split(",")
    if len(prefill) != 2 or prefill[1] != "own" or not prefill[0].isdigit():
        return None
    start = int(prefill[0])
    fields = header.get("fields", "default")
    settings: dict[str, Any] = {
        **_named_model(header["model"], model),
        "tokens": ",".join(tokens[:start]),
        "n": len(tokens) - start,
        "fields": "" if fields == "default" else f"+{fields.replace(',', ',+')}",
        "dump_prefill": any(entry.key.pos < start for entry in dump.entries),
        "hash_name": dump.hash_name,
    }
    if "model" not in settings:
        return None
    try:
        return settings if make_run(**settings).model.label == header["model"] else None
    except InputError:
        if model is not None:
            raise
        return None


def _named_model(label: str, given: str | None) -> dict[str, Any]:
    """The options that name a model with this label; none where none do."""
    found = _LABEL.fullmatch(label)
    if found is not None:
        weights = "f32" if found[2] else "q4"
        return {"model": found[1], "weights": weights, "seed": int(found[3])}
    if given is None or _is_preset(given):
        return {}
    return {"model": given, "weights": None, "seed": 0}


def checked_settings(
    where: str, settings: Mapping[str, Any] | None, given: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The recorded options, with a model file where it lies now: its weights are held to the
    record when they are loaded. Raises InputError, naming the option, for one that is given and
    is not as recorded."""
    asked = _by_ids(settings, given)
    moved = {}
    if settings is not None and _names_file(settings["model"]) and _names_file(given.get("model")):
        moved["model"] = asked.pop("model")
    require_options(where, settings, asked)
    return None if settings is None else {**settings, **moved}


def _by_ids(settings: Mapping[str, Any] | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """``given`` with the ids of a text prompt in its place."""
    asked = {name: value for name, value in given.items() if name not in _TEXT}
    text = {name: value for name, value in given.items() if name in _TEXT}
    if text and settings is not None:
        model = {"model": given.get("model", settings["model"])}
        run = make_run(**{**settings, "tokens": given.get("tokens"), **model, **text})
        asked["tokens"] = ",".join(map(str, run.prompt))
    return asked


def require_options(
    where: str, settings: Mapping[str, Any] | None, given: Mapping[str, Any]
) -> None:
    """Raise InputError, naming the option, for one that is not as recorded."""
    from parity.baseline import differing

    for name, value in given.items():
        recorded = None if settings is None else settings[name]
        if name == "tokens" and recorded is None and settings is not None:
            recorded = ",".join(map(str, make_run(**settings).prompt))
        recorded = "not recorded" if recorded is None else recorded
        texts = [str(text) or "none" for text in (recorded, value)]
        if texts[0].replace(" ", "") != texts[1].replace(" ", ""):
            raise differing(where, _OPTIONS.get(name, f"--{name.replace('_', '-')}"), *texts)


def _names_file(model: str | None) -> bool:
    return model is not None and not _is_preset(model)


def _is_preset(model: str) -> bool:
    from parity.model.config import PRESETS

    return model in PRESETS
