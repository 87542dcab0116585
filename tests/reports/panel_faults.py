"""What is shown otherwise than it stands in the JSON: each check names the cell, both ways."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.reports.html_tables import Cell, Row, tables

Record = dict[str, Any]
WIDEST = 12  # rows of a block side by side; of a wider one they go downwards


def number(value: int) -> str:
    """As pages write it."""
    return f"{value:,}"


def _wanted(where: str, shown: object, wanted: object) -> Iterator[str]:
    if shown != wanted:
        yield f"{where}: {shown!r} shown, {wanted!r} recorded"


def grid(html: str, record: Record) -> list[str]:
    """The grid of isodiff against its blocks."""
    found, wrong = tables(html), []
    lines: dict[str, list[Record]] = {}
    for block in record["blocks"]:
        lines.setdefault(f"grid-{block['seed']}-{block['m']}", []).append(block)
    wrong += _wanted("grids", [name for name in found if name.startswith("grid-")], [*lines])
    for name, blocks in lines.items():
        rows = found.get(name, [])
        rows = _turned(rows) if blocks[0]["m"] > WIDEST else rows[1:]
        wrong += _wanted(f"{name} rows", len(rows), len(blocks))
        for block, row in zip(blocks, rows, strict=False):
            wrong += _block(f"{name} pos {block['pos']} {block['how']}", block, row)
    return wrong


def _turned(rows: list[Row]) -> list[Row]:
    """Columns of a table whose rows go downwards, but the first, as rows."""
    columns = zip(*(row.cells for row in rows), strict=True)
    return [Row(frozenset(), list(column)) for column in columns][1:]


def _block(where: str, block: Record, row: Row) -> Iterator[str]:
    head, *cells = row.cells
    *cells, state, further = cells
    special = "not comparable" if block["verdict"] == "not_run" else block["how"]
    remark = "" if special == "rows" else f"{special} "
    yield from _wanted(f"{where} pos", head.text, f"{remark}{block['pos']}")
    tapped = block["how"] == "rows"
    keys = block["keys"] if tapped else [0] * block["m"]
    differs = [logits != 0 or bool(own) for logits, own in zip(block["logits"], keys, strict=True)]
    first = differs.index(True) if block["telling"] else None
    for at, (logits, own, cell) in enumerate(zip(block["logits"], keys, cells, strict=True)):
        yield from _cell(f"{where} row {at}", logits, own, differs[at], cell)
        yield from _wanted(f"{where} row {at} first", "first" in cell.classes, at == first)
    for name, cell, text in (("state", state, "state"), ("further", further, "further")):
        wanted = (block[text] or "equal") if tapped else "not compared"
        yield from _wanted(f"{where} {name}", cell.text, wanted)
        icon = "" if not tapped else "no" if block[text] else "ok"
        yield from _wanted(f"{where} {name} icon", cell.icon, icon)


def _cell(where: str, logits: int | None, keys: int, differs: bool, cell: Cell) -> Iterator[str]:
    text = "absent" if logits is None else number(logits)
    text += f" {number(keys)} key{'' if keys == 1 else 's'}" if keys else ""
    yield from _wanted(where, cell.text, text)
    yield from _wanted(f"{where} differs", "differs" in cell.classes, differs)
    yield from _wanted(f"{where} dim", "dim" in cell.classes, not differs)


def rollback(html: str, record: Record) -> list[str]:
    """By M, the rules and every draft."""
    found, wrong = tables(html), []
    head, *rows = found["by-m"]
    wrong += _wanted("heads", head.texts, record["grid"]["heads"])
    wrong += _wanted("sizes", len(rows), len(record["grid"]["rows"]))
    for row, texts in zip(rows, record["grid"]["rows"], strict=False):
        for name, cell, text in zip(head.texts, row.cells, texts, strict=True):
            wrong += _wanted(f"M {texts[0]} {name}", cell.text, text)
            wrong += _wanted(f"M {texts[0]} {name} icon", cell.icon, _icon(name, text))
    for row, rule in zip(found["rules"][1:], record["rules"], strict=True):
        wrong += _wanted(f"rule {rule['what']}", row.texts[0], rule["what"])
        wrong += _wanted(f"rule {rule['what']} held", row.texts[2], rule["problem"] or "yes")
        icon = "no" if rule["problem"] else "ok"
        wrong += _wanted(f"rule {rule['what']} icon", row.cells[2].icon, icon)
    names = found["drafts"][0].texts[3:-1]
    for row, draft in zip(found["drafts"][1:], record["drafts"], strict=True):
        where = f"M {draft['m']} {draft['what']}"
        wrong += _wanted(where, row.texts[:3], [str(draft["seed"]), str(draft["m"]), draft["what"]])
        wrong += _wanted(f"{where} hot", row.hot, bool(draft.get("problem", "")))
        wrong += _wanted(f"{where} wrong", row.texts[-1], draft.get("problem", "") or "nothing")
        for name, cell in zip(names, row.cells[3:-1], strict=True):
            text = draft["cells"].get(name, "not run") or "equal"
            wrong += _wanted(f"{where} {name}", cell.text, text)
            wrong += _wanted(f"{where} {name} icon", cell.icon, _icon(name, text))
    return wrong


def _icon(name: str, text: str) -> str:
    if name == "M":
        return ""
    return {"equal": "ok", "not run": "dash"}.get(text, "no")


def chunks(html: str, record: Record) -> list[str]:
    """Every size and way."""
    wrong = []
    for row, one in zip(tables(html)["fed"][1:], record["fed"], strict=True):
        where = f"chunk {one['size']} {one['way']}"
        refused, problem = one.get("refused", ""), one.get("problem", "")
        counts = "" if refused else f"{number(one['equal'])} of {number(one['keys'])}"
        result = f"not run: {refused}" if refused else problem or "equal"
        icon = "dash" if refused else "no" if problem else "ok"
        wanted = [str(one["seed"]), number(one["size"]), one["way"], counts, result]
        wrong += _wanted(where, row.texts, wanted)
        wrong += _wanted(f"{where} icon", row.cells[-1].icon, icon)
    return wrong


def controls(html: str, records: list[Record]) -> list[str]:
    """What was planted and seen."""
    wrong = []
    told = [(record["name"], one) for record in records for one in record["controls"]]
    for row, (probe, one) in zip(tables(html)["control-faults"][1:], told, strict=True):
        seen = "yes" if one["fired"] else "no"
        wrong += _wanted(
            f"control {one['name']}", row.texts, [probe, one["name"], seen, one["text"]]
        )
        icon = "ok" if one["fired"] else "no"
        wrong += _wanted(f"control {one['name']} icon", row.cells[2].icon, icon)
    return wrong


def costs(html: str, record: Record) -> list[str]:
    """Calls and times by M, then op by op."""
    found, wrong = tables(html), []
    for row, one in zip(found["costs"][1:], record["costs"], strict=True):
        calls = [number(sum(one[side].values())) for side in ("rows_calls", "single_calls")]
        times = [f"{1e3 * one[side]:,.2f}" for side in ("rows_seconds", "single_seconds")]
        wrong += _wanted(f"cost M {one['m']}", row.texts, [str(one["m"]), *calls, *times])
    for row in found["calls"][1:]:
        op, *texts = row.texts
        for text, one in zip(texts, record["costs"], strict=True):
            pair = [number(one[side].get(op, 0)) for side in ("rows_calls", "single_calls")]
            wrong += _wanted(f"calls of {op}", text, ", ".join(pair))
    return wrong


def ladder(html: str, record: Record) -> list[str]:
    """Each rung, and its track."""
    wrong = []
    first, last = map(int, record["run"]["positions"].split(":"))
    rungs = record["rungs"]
    for row, one in zip(tables(html)["rungs"][1:], rungs, strict=True):
        where, total = f"rung {one['name']}", number(one["tokens"]["total"])
        flip = one["flip"]
        keys = one["keys"]
        wanted = [
            *(one["name"], f"{number(one['tokens']['equal'])} of {total}", ""),
            f"{number(one['tokens']['fed_equal'])} of {total}",
            f"t{flip['pos']} ref {flip['ref']} dut {flip['dut']}" if flip else "none",
            one["first"] or "none",
            f"{number(keys['total'] - keys['same'])} of {number(keys['total'])}",
        ]
        wrong += _wanted(where, row.texts, wanted)
        wrong += _wanted(f"{where} icon", row.cells[4].icon, "no" if flip else "ok")
        wrong += _wanted(f"{where} decides", row.hot, one is rungs[-1])
        place = flip and f"{round(100 * (flip['pos'] - first) / (last - first + 1), 2)}%"
        shown = [rect["x"] for rect in row.cells[2].rects]
        wrong += _wanted(f"{where} track", shown, [place, place] if place else [])
    return wrong


def equality(html: str, record: Record) -> list[str]:
    """Seed by seed and M by M."""
    wanted: list[tuple[list[str], str]] = []
    for seed in record["equality"]:
        one, problem = seed["single_steps"], seed["problem"]
        counts = f"{number(one['counts']['same'])} of {number(one['counts']['ref'])}"
        said = f"{problem['what']}, first {problem['first']}" if problem else "equal"
        told = [str(seed["seed"]), "single steps", said, counts, "", "", "", _control(one)]
        wanted.append((told, "no" if problem else "ok"))
        for size in seed["sizes"]:
            numbers = [number(size[name]) for name in ("keys", "rows", "parts", "passes")]
            told = [str(seed["seed"]), f"M = {size['size']}", "equal", *numbers, _control(size)]
            wanted.append((told, "ok"))
    rows, wrong = tables(html)["equality-table"][1:], []
    wrong += _wanted("rows", len(rows), len(wanted))
    for row, (texts, icon) in zip(rows, wanted, strict=False):
        where = f"seed {texts[0]} {texts[1]}"
        wrong += _wanted(where, row.texts, texts)
        wrong += _wanted(f"{where} icon", row.cells[2].icon, icon)
    return wrong


def _control(one: Record) -> str:
    return "none planted" if one["control"] is None else f"found at {one['control']['key']}"


def timing(html: str, record: Record) -> list[str]:
    """Medians, ratios, intervals, and every pair."""
    found, wrong = tables(html), []
    statistics = record["statistics"]
    told = [*statistics["by_size"].items(), ("all", statistics["all"])]
    for row, (name, one) in zip(found["times"][1:], told, strict=True):
        low, high = one["interval"]["low"], one["interval"]["high"]
        sides = [_times(one[side]) for side in ("base", "candidate")]
        bounds = "not bounded" if low is None else f"{low:.3f} to {high:.3f}"
        signs = [number(one["signs"][sign]) for sign in ("faster", "slower", "ties")]
        wrong += _wanted(
            f"M {name}", row.texts, [name, *sides, f"{one['ratio']:.3f}", bounds, *signs]
        )
        wrong += _wanted(f"M {name} decides", row.hot, name == "all")
    for row, pair in zip(found["pairs"][1:], record["timing"]["pairs"], strict=True):
        first = "candidate" if pair["candidate_first"] else "base"
        numbers = [number(pair[side]) for side in ("base", "candidate")]
        wanted = [number(pair["round"]), str(pair["seed"]), str(pair["size"]), first, *numbers]
        wrong += _wanted(f"pair {pair['round']}, M {pair['size']}", row.texts, wanted)
    return wrong


def _times(spread: Record) -> str:
    median, (low, high) = spread["median"], spread["quartiles"]
    return f"{median / 1e6:,.2f} ({low / 1e6:,.2f} to {high / 1e6:,.2f})"


def promises(html: str, record: Record) -> list[str]:
    """What became of each promise."""
    wrong = []
    for row, one in zip(tables(html)["promise-table"][1:], record["promises"], strict=True):
        wrong += _wanted(one["promise"], row.texts, [one["promise"], one["state"], one["text"]])
        icon = {"kept": "ok", "broken": "no"}.get(one["state"], "dash")
        wrong += _wanted(f"{one['promise']} icon", row.cells[1].icon, icon)
        wrong += _wanted(f"{one['promise']} hot", row.hot, one["state"] == "broken")
    return wrong


def selftest(html: str, record: Record) -> list[str]:
    """Fault by level, and every trial."""
    found, wrong = tables(html), []
    head, *rows = found["fault-table"]
    by_place = {(one["fault"], one["level"]): one for one in record["trials"]}
    wrong += _wanted("cells", len(rows) * len(head.texts[1:]), len(by_place))
    for row in rows:
        for level, cell in zip(head.texts[1:], row.cells[1:], strict=True):
            one = by_place[row.texts[0], level]
            missed = "MISSED" if one["want"] in ("caught", "exit 2") else "ALARM"
            wrong += _wanted(
                f"{one['fault']}, {level}", cell.text, one["want"] if one["caught"] else missed
            )
            icon = "ok" if one["caught"] else "no"
            wrong += _wanted(f"{one['fault']}, {level} icon", cell.icon, icon)
    for row, one in zip(found["trials"][1:], record["trials"], strict=True):
        wanted = [one["level"], one["fault"], one["key"], one["found"] or "none", one["said"]]
        wanted += [str(one["status"]), number(one["differ"])]
        wrong += _wanted(f"trial {one['fault']}, {one['level']}", row.texts, wanted)
        wrong += _wanted(f"trial {one['fault']}, {one['level']} hot", row.hot, not one["caught"])
    return wrong


def sides(html: str, heads: list[str], told: list[Record]) -> list[str]:
    """Every header of every side."""
    head, *rows = tables(html)["sides"]
    wrong = [*_wanted("sides", head.texts, ["Header", *heads])]
    names = list(dict.fromkeys(name for side in told for name in side if name != "spec" or side))
    wrong += _wanted("headers", [row.texts[0] for row in rows], names)
    for row in rows:
        name, *texts = row.texts
        values = [side.get(name, "") for side in told]
        same = [at > 0 and value != "" and value == values[0] for at, value in enumerate(values)]
        wanted = ["the same" if one else value for one, value in zip(same, values, strict=True)]
        wrong += _wanted(f"header {name}", texts, wanted)
    return wrong
