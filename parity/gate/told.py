"""The evidence of a gate in words, for every report: all of it comes from the record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Record = Mapping[str, Any]
_HEADER = ("engine", "version", "tier", "variants", "device", "driver")


def headline(record: Record) -> str:
    """Who against whom, and what was found."""
    names = f"{record['candidate'].get('spec')} against {record['base'].get('spec')}"
    emulated = [role for role in ("base", "candidate") if record[role].get("emulated") == "yes"]
    label = f", {' and '.join(emulated)} emulated" if emulated else ""
    return f"{names}: {record['reason']}{label}"


def facts(record: Record) -> Iterator[tuple[str, str]]:
    """Label and text: who against whom, on what, and what was found equal."""
    settings = record["settings"]
    yield "base", _side(record["base"])
    yield "candidate", _side(record["candidate"])
    seeds = ", ".join(map(str, settings["seeds"]))
    run = f"{settings['prompt']} tokens prefilled, {settings['n']} decoded"
    told = record["base"].get("model")  # a program has a model of its own
    model = settings["model"] if told in (None, *settings["labels"]) else told
    yield "model", f"{model}, seeds {seeds}; {run}"
    yield "M", ", ".join(map(str, settings["sizes"]))
    yield from _equal(record)
    yield "code", _code(record)
    if record["problem"] and record["problem"]["cause"]:
        yield "cause", f"{record['first']}: {record['problem']['cause']}"


def _side(header: Record) -> str:
    parts = [header.get(name, "").replace(",", ", ") for name in _HEADER]
    text = ", ".join(part for part in parts if part not in ("", "none", "untold"))
    return f"{header.get('spec')}: {text}"


def _equal(record: Record) -> Iterator[tuple[str, str]]:
    """What was compared and found equal, seed by seed, and the controls."""
    seeds = record["equality"]
    single = [seed["single_steps"]["counts"] for seed in seeds]
    same, total = sum(one["same"] for one in single), sum(one["ref"] for one in single)
    sizes = [size for seed in seeds for size in seed["sizes"]]
    keys = sum(size["keys"] * size["passes"] for size in sizes)
    rows = sum(size["rows"] * size["passes"] for size in sizes)
    yield "steps", f"{same:,} of {total:,} keys equal in single steps, the prompt's too"
    if sizes:
        text = f"{keys:,} keys, {rows:,} rows of logits, {_ends(sizes)} end states equal"
        yield "rows", f"{text}; each pass made twice"
    fired = [seed["single_steps"]["control"] for seed in seeds]
    controls = [one for one in [*fired, *(size["control"] for size in sizes)] if one]
    if controls:
        hits = sum(one["fired"] for one in controls)
        inside = all(one["kind"] == "inject" for one in controls)
        what = "planted faults" if inside else "digits changed in a dump (dump level)"
        yield "control", f"fired: {hits} of {len(controls)} {what} found at their key"
    pairs = record["timing"]["pairs"]
    if pairs:
        text = f"{2 * len(pairs):,} timed passes, logits and end states compared in each"
        yield "timed", text if not record["problem"] else f"{text}, before the one that differs"


def _ends(sizes: list[Any]) -> int:
    return sum(size["passes"] for size in sizes)


def _code(record: Record) -> str:
    base, candidate = (record[role].get("compiled", "not told") for role in ("base", "candidate"))
    one = base == candidate and record["code"]["told"]
    if record["code"]["identical"]:
        what = f"the same compiled code ({base}) with the same settings" if one else "the same code"
        return f"both ran {what}: nothing to gate"
    if not one:
        return f"base {base}, candidate {candidate}"
    masks = [record[role].get("mask", "none") for role in ("base", "candidate")]
    if masks[0] != masks[1]:
        return f"one build ({base}), other branches: base {masks[0]}, candidate {masks[1]}"
    return f"both ran the same compiled code ({base}), with other options or in another engine"


def times(spread: Record) -> str:
    """Median and quartiles in milliseconds: ``4.00 (3.90 to 4.10)``."""
    low, high = spread["quartiles"]
    return f"{milliseconds(spread['median'])} ({milliseconds(low)} to {milliseconds(high)})"


def milliseconds(nanoseconds: float) -> str:
    """Two decimals, without a unit."""
    return f"{nanoseconds / 1e6:,.2f}"


def ratio_text(timing: Record) -> str:
    """The median ratio and its interval: ``0.800 (0.790 to 0.810)``."""
    low, high = timing["interval"]["low"], timing["interval"]["high"]
    bounds = "not bounded" if low is None else f"{low:.3f} to {high:.3f}"
    return f"{timing['ratio']:.3f} ({bounds})"


def tests(record: Record) -> Iterator[tuple[str, str]]:
    """The test and the interval by name, and what they found over all sizes."""
    whole, statistics = record["statistics"]["all"], record["statistics"]
    signs, interval = whole["signs"], whole["interval"]
    pairs = signs["faster"] + signs["slower"] + signs["ties"]
    ties = f", {signs['ties']} tied" if signs["ties"] else ""
    counts = f"{signs['faster']} of {pairs} pairs faster, {signs['slower']} slower{ties}"
    yield "test", f"{statistics['test']}: {counts}, p = {signs['p']:.2g}"
    ranks = interval["ranks"]
    if ranks is not None:
        place = f"ranks {ranks[0]} and {ranks[1]} of {pairs}"
        asked = f"at least {interval['confidence']:.4g}, here {interval['coverage']:.4f}"
        yield "interval", f"{statistics['interval']}, {place}; coverage {asked}"
    for role in ("base", "candidate"):
        low, high = whole[role]["extremes"]
        yield "range", f"{role} {milliseconds(low)} to {milliseconds(high)} ms over all sizes"
    warm_up = record["timing"]["warm_up_rounds"]
    order = "in each two rounds each side goes first once, which one is drawn from the seed"
    warm = f"{warm_up} warm-up rounds a seed are checked and not timed"
    yield "order", f"{order}; each round has its own tokens; {warm}"
    margin = f"{record['settings']['margin'] * 100:g} %"
    yield "margin", f"the same speed: the whole interval within {margin} of 1"
