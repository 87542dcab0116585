"""Records as the commands write them to their JSON files, small and with every part filled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from parity.cli.saved_checks import saved_checks
from parity.runs.checks import CheckRun

Record = dict[str, Any]
ABOUT = {
    **{"engine": "cpu", "version": "1.0", "compiled": "29440e74c581d06c", "mask": "0000"},
    "packages": "parity=1.0 numpy=2.0",
}
HEX = "0123456789abcdef" * 4


def probe(name: str, **parts: Any) -> Record:
    """A file of isodiff, rollback or chunks that holds nothing but ``parts``."""
    return {
        **{"format": "parity-probe", "version": 5, "name": name, "verdict": "same"},
        **{"headline": "24 of 24", "facts": [["engine", "cpu"], ["model", "moe-tiny"]]},
        **{"lines": [], "first": None, "failing": "", "compared": 1104, "brief": "", "table": []},
        **{"costs": [], "about": {}, "claim": "row m has the bits of M single steps"},
        **{"blocks": [], "grid": None, "drafts": [], "rules": [], "fed": [], "controls": []},
        **{"batches": [], "moved": None, "smallest": None, "again": None},
        **{"command": f"parity {name} --m 2", "reproduce": f"parity {name} --m 2 --seed 7"},
        **{"seconds": 1.5, **parts},
    }


def block(m: int, pos: int, logits: list[int | None], **parts: Any) -> Record:
    """A block of isodiff; equal where ``parts`` says nothing."""
    return {
        **{"seed": 7, "m": m, "pos": pos, "how": "rows", "verdict": "same", "logits": logits},
        **{"keys": [0] * m, "state": "", "further": "", "first": None, "asked": True},
        **{"telling": False, **parts},
    }


def isodiff() -> Record:
    """Diverged: M = 3 at pos 34 differs in row 1 (its logits) and row 2 (a key alone)."""
    red = {"verdict": "diverged", "first": "t35_l0_attn"}
    blocks = [
        block(2, 33, [0, 0]),
        block(2, 34, [0, 0]),
        block(2, 33, [0, 0], how="rows without a tap", keys=[]),
        block(3, 33, [0, 0, 0]),
        block(
            *(3, 34, [0, 1003, 0]),
            **{**red, "keys": [0, 12, 3], "state": "l0_k row 35", "further": "t37_l0_attn"},
            telling=True,
        ),
        block(3, 33, [0, 7, None], how="single steps without a tap", keys=[], verdict="diverged"),
        block(4, 33, [0, 0, 0, 0], asked=False, verdict="not_run"),
    ]
    return probe(
        "isodiff",
        **{"verdict": "diverged", "headline": "M = 3, pos 34, col 1; first key t35_l0_attn"},
        first="t35_l0_attn",
        about=ABOUT,
        blocks=blocks,
        lines=["[SPECTOP1] pos=33 col=0 top1=9 [ISOTOP1] col=0 9 [ISODIFF] col=0 ndiff=0"],
        costs=[
            {
                **{"m": 2, "rows_seconds": 0.00123, "single_seconds": 1.5},
                **{"rows_calls": {"rope": 4, "add": 1}, "single_calls": {"rope": 8, "norm": 1020}},
            }
        ],
        controls=[{"name": "a planted fault, seed 7", "fired": True, "text": "found at that key"}],
    )


def rollback() -> Record:
    """Diverged: at M = 4 the further steps are not equal; a rule is broken, a control not seen."""
    cells = {"logits": "", "keys": "", "further": "DIFF at step 2"}
    return probe(
        "rollback",
        **{"verdict": "diverged", "headline": "M = 4, accept 1: a further step differs"},
        grid={
            "heads": ["M", "logits", "keys", "8 further steps"],
            "rows": [["2", "equal", "equal", "equal"], ["4", "equal", "not run", "DIFF at step 2"]],
        },
        drafts=[
            {"seed": 7, "m": 2, "what": "accept 0", "cells": dict.fromkeys(cells, "")},
            {"seed": 7, "m": 4, "what": "accept 1", "cells": cells, "problem": "a step differs"},
            {"seed": 7, "m": 4, "what": "three drafts in a row", "cells": {"keys": ""}},
        ],
        rules=[
            {"seed": 7, "what": "a second rollback", "problem": ""},
            {"seed": 7, "what": "a mark at position 0", "problem": "was refused: no mark"},
        ],
        controls=[{"name": "length kept", "fired": False, "text": "not seen"}],
        about=ABOUT,
    )


def chunks() -> Record:
    """Diverged: one way is equal, one differs, one was refused."""
    return probe(
        "chunks",
        **{"verdict": "diverged", "headline": "chunks of 7, fed by rows"},
        fed=[
            {"seed": 7, "size": 2, "way": "prefill", "keys": 3358, "equal": 3358},
            {"seed": 7, "size": 7, "way": "rows", "keys": 3358, "equal": 3000, "problem": "t9_x"},
            {"seed": 7, "size": 100, "way": "rows", "refused": "100 rows in one forward"},
        ],
        controls=[{"name": "a planted fault", "fired": True, "text": "fired"}],
        about=ABOUT,
    )


def batch() -> Record:
    """Diverged: B = 2, ragged: the padded sequence differs; B = 3, other prompts: one leaks."""

    def mate(index: int, length: int, padding: int = 0, **parts: Any) -> Record:
        sizes = {"index": index, "length": length, "padding": padding, "compared": 184}
        return {**sizes, **{"logits": 0, "keys": 0, "first": None}, **parts}

    def one(b: int, neighbours: str, place: int, mates: list[Record], **parts: Any) -> Record:
        head = {"seed": 7, "b": b, "neighbours": neighbours, "place": place, "mates": mates}
        rest = {"verdict": "same", "contents": None, "asked": True, "telling": False}
        return {**head, **rest, **parts}

    red = {"logits": 1003, "keys": 92, "first": "t0_l0_attn"}
    key, logits = (
        {"what": what, "dtype": "bf16", "differ": 3, "total": 64, "ulp": 2, "largest": 0.5}
        for what in ("t0_l0_attn", "logits")
    )
    return probe(
        "batch",
        **{"verdict": "diverged", "headline": "B = 2, ragged, sequence 0; first key t0_l0_attn"},
        **{"first": "t0_l0_attn", "smallest": 2},
        batches=[
            one(2, "copies", 0, [mate(0, 5), mate(1, 5)]),
            one(2, "other prompts", 1, [mate(0, 5), mate(1, 5)], contents="", asked=False),
            one(
                *(2, "ragged", 0, [mate(0, 5, 82, **red), mate(1, 87)]),
                **{"verdict": "diverged", "telling": True},
            ),
            one(
                *(3, "other prompts", 0, [mate(0, 5), mate(1, 5), mate(2, 5)]),
                **{"verdict": "diverged", "contents": "t1_l0_k"},
            ),
            one(4, "ragged", 3, [mate(3, 5, 82)], verdict="not_run"),
        ],
        moved={
            **{"first": key, "logits": logits, "rows": 12, "flipped": 1, "at_risk": 2},
            "closest": "B = 2",
        },
        again={
            **{"settings": "invariant=on", "verdict": "same", "headline": "B = 2: 4 of 4"},
            **{"first": None, "smallest": None},
        },
        about=ABOUT,
    )


def ladder() -> Record:
    """Diverged rungs and an exact one that is the same; t32 to t43."""

    def rung(name: str, equal: int, flip: list[int] | None, first: str | None) -> Record:
        return {
            **{"name": name, "dut": {**ABOUT, "tier": name}, "first": first},
            "tokens": {"equal": equal, "fed_equal": min(12, equal + 1), "total": 12},
            "flip": None if flip is None else dict(zip(("pos", "ref", "dut"), flip, strict=True)),
            "keys": {"same": 2024 - 1779 * (first is not None), "differ": 1779, "total": 2024},
            **{"verdict": "same" if first is None else "diverged", "level": "bit", "reason": ""},
            "control": None if first else {"key": "t40_l3_vs", "fired": True},
        }

    return {
        **{"format": "parity-ladder", "version": 1, "status": 0, "ref": ABOUT},
        "run": {"model": "moe-48 seed 10", "tokens": "32", "positions": "32:43"},
        "rungs": [rung("fast", 9, [41, 323, 310], "t0_l0_nrm"), rung("exact", 12, None, None)],
        **{"reproduce": "parity ladder --n 12 --json l.json", "seconds": 2.0},
    }


def spread(median: float) -> Record:
    """Times of one side."""
    low, high = median * 0.9, median * 1.1
    return {"median": median, "quartiles": [low, high], "extremes": [low / 2, high * 2]}


def timing(ratio: float, low: float | None, high: float | None) -> Record:
    """A summary of pairs."""
    ranks = None if low is None else [1, 4]
    return {
        **{"base": spread(4e6), "candidate": spread(4e6 * ratio), "ratio": ratio},
        "signs": {"faster": 3, "slower": 1, "ties": 0, "p": 0.5},
        "interval": {
            **{"confidence": 0.95, "low": low, "high": high, "ranks": ranks, "coverage": 0.9609},
        },
    }


def gate() -> Record:
    """Default: equal on one seed, and faster at M = 1; M = 4 is not bounded."""
    control = {"kind": "inject", "fired": True, "key": "t38_l0_k", "found": "t38_l0_k"}
    control |= {"element": 3, "unit": "ULP"}
    pairs = [
        {
            **{"seed": 7, "round": at + 1, "size": size, "candidate_first": bool(at % 2)},
            **{"base": 4_000_000, "candidate": 3_200_000 + 100_000 * at},
        }
        for at in range(2)
        for size in (1, 4)
    ]
    size = {"seed": 7, "keys": 368, "rows": 8, "parts": 17, "passes": 2, "control": control}
    return {
        **{"format": "parity-gate", "version": 1, "verdict": "default", "exit_status": 0},
        **{"reason": "equal and faster", "first": None, "problem": None},
        "command": "parity gate --fast two_pass --engine cuda --json g.json",
        "base": {**ABOUT, "spec": "cuda"},
        "candidate": {**ABOUT, "spec": "cuda+two_pass", "mask": "0002"},
        "code": {"identical": False, "told": True},
        "settings": {
            **{"model": "moe-48", "labels": ["moe-48 seed 7"], "seeds": [7], "sizes": [1, 4]},
            **{"prompt": 32, "n": 8, "rounds": 2, "confidence": 0.95, "margin": 0.01},
        },
        "equality": [
            {
                **{"seed": 7, "tokens": {}, "weights": {}, "outputs": HEX, "problem": None},
                "single_steps": {
                    **{"verdict": "same", "first": None, "reason": "", "notes": []},
                    "counts": {"ref": 1840, "dut": 1840, "same": 1840, "differ": 0},
                    **{"states": [], "control": control},
                },
                "sizes": [{**size, "size": 1}, {**size, "size": 4, "keys": 369}],
            }
        ],
        "timing": {"clock": {}, "unit": "ns", "warm_up_rounds": 2, "rounds": [], "pairs": pairs},
        "statistics": {
            **{"test": "sign test", "interval": "order statistics"},
            "all": timing(0.812, 0.8, 0.825),
            "by_size": {"1": timing(0.8, 0.8, 0.83), "4": timing(0.81, None, None)},
            "corrected": {"1": timing(0.8, 0.79, 0.84)["interval"]},
        },
        "machine": {"platform": "Linux", "python": "3.11.7", "processors": 2},
        **{"notes": ["a note"], "seconds": 22.1},
        "evidence": {
            **{"name": "g", "seq": 2, "address": HEX, "digest": HEX},
            "created": "2026-01-31T12:00:00Z",
        },
    }


def refused_gate() -> Record:
    """Refused in single steps: nothing was timed."""
    problem = {"seed": 7, "size": 1, "what": "a key differs", "first": "t0_l0_nrm", "singly": True}
    problem |= {"cause": "RMSNorm", "reproduce": "parity diff --ref cuda --dut cuda+two_pass"}
    record = gate()
    seed = {**record["equality"][0], "problem": problem, "sizes": [], "outputs": None}
    single = {**seed["single_steps"], "verdict": "diverged", "control": None}
    counts = {**single["counts"], "same": 236, "differ": 1604}
    return {
        **record,
        **{"verdict": "refused", "exit_status": 1, "first": "t0_l0_nrm", "problem": problem},
        "reason": "not equal: seed 7, M = 1: a key differs, first t0_l0_nrm",
        "equality": [{**seed, "single_steps": {**single, "counts": counts}}],
        "timing": {**record["timing"], "pairs": []},
        "statistics": {**record["statistics"], "all": None, "by_size": {}, "corrected": {}},
    }


def conformance() -> Record:
    """One promise broken, one not offered, one kept."""
    states = (("shapes", "kept", ""), ("rollback_restores", "not offered", "rollback"))
    states += (("reset_forgets", "broken", "other logits at step 2"),)
    return {
        **{"format": "parity-conformance", "version": 1, "verdict": "broken", "engine": "x:Y"},
        **{"model": "moe-tiny seed 7", "reproduce": "parity conformance x:Y"},
        "promises": [
            {"promise": promise, "state": state, "text": text} for promise, state, text in states
        ],
    }


def selftest() -> Record:
    """Two faults at two levels: one missed, one false alarm; a level that was not run."""

    def trial(fault: str, level: str, want: str, caught: bool) -> Record:
        found = "t1_l0_k" if caught and want == "caught" else None
        return {
            **{"fault": fault, "level": level, "key": "t1_l0_k", "want": want, "caught": caught},
            **{"found": found, "said": "diverged" if found else "same", "status": int(caught)},
            **{"differ": 1200, "problem": ""},
        }

    return {
        **{"format": "parity-selftest", "version": 2, "passed": False, "seed": 7},
        "trials": [
            trial("+0 to -0", "dumps", "caught", True),
            trial("same bytes", "dumps", "quiet", False),
            trial("+0 to -0", "cpu moe-tiny", "caught", False),
            trial("same bytes", "cpu moe-tiny", "quiet", True),
        ],
        "not_run": {"cuda": "no CUDA device works here"},
        **{"seconds": 2.1, "reproduce": "parity selftest"},
    }


ALL = {
    "isodiff": [isodiff()],
    "isodiff and rollback": [isodiff(), rollback()],
    "rollback": [rollback()],
    "chunks": [chunks()],
    "batch": [batch()],
    "ladder": [ladder()],
    "gate": [gate()],
    "refused gate": [refused_gate()],
    "conformance": [conformance()],
    "selftest": [selftest()],
}


def written(folder: Path, records: list[Record]) -> Path:
    """A JSON file of ``records``, as the command would write it."""
    path = folder / "saved.json"
    body = records[0] if len(records) == 1 else records
    path.write_text(json.dumps(body), encoding="utf-8")
    return path


def run_of(folder: Path, records: list[Record]) -> CheckRun:
    """What ``parity report`` reads from such a file."""
    run = saved_checks(written(folder, records))
    assert run is not None
    return run
