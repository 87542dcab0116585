"""The evidence of a gate as text: all of it comes from the record, nothing is found out anew."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

Record = Mapping[str, Any]
LABEL, WIDTH = 11, 80
_HEADER = ("engine", "version", "tier", "variants", "device", "driver")


def gate_line(record: Record) -> str:
    """The one line of ``-q``."""
    whole = record["statistics"]["all"]
    ratio = "" if whole is None else f", ratio {_interval(whole)}"
    return f"{record['verdict']}: {gate_headline(record)}{ratio}"


def gate_lines(record: Record, kept: str | None, address: str) -> list[str]:
    """The whole report. ``kept``: where the evidence stands, None where it could not be kept."""
    lines = [f"{record['verdict'].upper()}  {gate_headline(record)}", ""]
    for label, text in _facts(record):
        lines += _fact(label, text)
    if record["statistics"]["all"] is not None:
        lines += ["", *_table(record), ""]
        lines += [line for label, text in _test(record) for line in _fact(label, text)]
    lines += [line for note in record["notes"] for line in _fact("note", note)]
    if record["problem"]:
        lines += ["", "  reproduce:", f"  {record['problem']['reproduce']}", ""]
    lines += _fact("evidence", f"{kept}, sha256 {address[:16]}" if kept else "not kept")
    return [*lines, *_fact("time", f"{record['seconds']:,.1f} s")]


def gate_headline(record: Record) -> str:
    """Who against whom, and what was found."""
    names = f"{record['candidate'].get('spec')} against {record['base'].get('spec')}"
    emulated = [role for role in ("base", "candidate") if record[role].get("emulated") == "yes"]
    label = f", {' and '.join(emulated)} emulated" if emulated else ""
    return f"{names}: {record['reason']}{label}"


def _facts(record: Record) -> Iterator[tuple[str, str]]:
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
    parts = [header.get(name, "") for name in _HEADER]
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


def _table(record: Record) -> list[str]:
    """Medians with quartiles of both sides, and the ratio with its interval, by M."""
    statistics = record["statistics"]
    cells = [("M", "base ms (quartiles)", "candidate ms (quartiles)", "ratio (interval)")]
    for size, timing in [*statistics["by_size"].items(), ("all", statistics["all"])]:
        times = (_times(timing["base"]), _times(timing["candidate"]))
        cells.append((size, *times, _interval(timing)))
    widths = [max(len(row[at]) for row in cells) for at in range(4)]
    return ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]


def _times(spread: Record) -> str:
    low, high = spread["quartiles"]
    return f"{_ms(spread['median'])} ({_ms(low)} to {_ms(high)})"


def _ms(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e6:,.2f}"


def _interval(timing: Record) -> str:
    low, high = timing["interval"]["low"], timing["interval"]["high"]
    bounds = "not bounded" if low is None else f"{low:.3f} to {high:.3f}"
    return f"{timing['ratio']:.3f} ({bounds})"


def _test(record: Record) -> Iterator[tuple[str, str]]:
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
        yield "range", f"{role} {_ms(low)} to {_ms(high)} ms over all sizes"
    warm_up = record["timing"]["warm_up_rounds"]
    order = "in each two rounds each side goes first once, which one is drawn from the seed"
    warm = f"{warm_up} warm-up rounds a seed are checked and not timed"
    yield "order", f"{order}; each round has its own tokens; {warm}"
    margin = f"{record['settings']['margin'] * 100:g} %"
    yield "margin", f"the same speed: the whole interval within {margin} of 1"


def _fact(label: str, text: str) -> list[str]:
    """One labelled fact, folded at blanks where it is wider than WIDTH."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=f"  {label:<{LABEL}}",
        subsequent_indent=" " * (LABEL + 2),
        break_long_words=False,
        break_on_hyphens=False,
    )
