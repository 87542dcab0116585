"""The evidence of a gate: one record with everything, kept in the store and never overwritten."""

from __future__ import annotations

import os
import platform
import re
import shlex
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from parity.builds.provenance import tells_code
from parity.errors import InputError, NotRunError
from parity.gate.equality import Problem, Seed
from parity.gate.passes import now
from parity.gate.running import Gate
from parity.gate.settings import Settings
from parity.gate.statistics import INTERVAL, TEST
from parity.gate.summary import ALL
from parity.gate.timing import WARM_UP
from parity.gate.verdict import MARGIN, GateVerdict
from parity.model.generator import prompt_tokens
from parity.model.opening import source_of
from parity.runs.run import Run
from parity.runs.settings import PROMPT_LENGTH
from parity.store import Entry, Store, check_name

FORMAT, VERSION, KIND, ACTION = "parity-gate", 1, "gate", "gate"
_PLAIN = re.compile(r"[^A-Za-z0-9:+@=._-]+")
_LONGEST = 60  # characters of each side in a name that nobody typed
_TRIES = 5  # against writers that add to the same name at the same moment
Record = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """What was typed, and the seconds that it took. ``weights``: None where they were not."""

    command: str
    model: str
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    weights: str | None = None


def default_name(base: str, candidate: str, model: str) -> str:
    """``cuda+two_pass against cuda, moe-48``: the name of a gate that nobody named."""
    base, candidate = (_PLAIN.sub("-", text)[:_LONGEST] for text in (base, candidate))
    return f"{candidate} against {base}, {model}"


def require_name(store: Store, name: str) -> None:
    """Refuse a name that cannot be kept, or a store that was altered, before anything is run."""
    check_name(KIND, name)
    if name in store.names(KIND):
        store.latest(KIND, name)


def keep(store: Store, name: str, record: Mapping[str, Any]) -> Entry:
    """Append ``record`` to ``name`` as a new entry, after whatever stands there."""
    for _ in range(_TRIES):
        last = _last(store, name)
        try:
            return store.append(KIND, name, record, action=ACTION, expected=last)
        except InputError:
            if _last(store, name) == last:  # no other writer came between: something else is wrong
                raise
    raise InputError(f"gate {name!r}: another writer came first each time", "give another --name")


def _last(store: Store, name: str) -> str | None:
    return store.latest(KIND, name).digest if name in store.names(KIND) else None


def record_of(gate: Gate, settings: Settings, asked: Asked) -> Record:
    """Everything of a gate as plain data, from which every report is made."""
    base, candidate = gate.headers
    problem = gate.problem
    return {
        "format": FORMAT,
        "version": VERSION,
        "verdict": gate.decision.verdict.value,
        "exit_status": int(gate.decision.verdict.exit_status),
        "reason": gate.decision.reason,
        "first": problem.first if problem else None,
        "problem": _problem(problem, gate, settings, asked) if problem else None,
        "command": asked.command,
        "base": base,
        "candidate": candidate,
        "code": _code(gate),
        "settings": _settings(settings, asked.model),
        "equality": [_equality(seed) for seed in gate.seeds],
        "timing": {
            "clock": _clock(),
            "unit": "ns",
            "warm_up_rounds": WARM_UP,
            "rounds": [asdict(one) for one in gate.rounds],
            "pairs": [asdict(pair) for pair in gate.pairs],
        },
        "statistics": _statistics(gate, settings),
        "machine": _machine(),
        "notes": list(asked.notes),
        "seconds": asked.seconds,
    }


def _problem(problem: Problem, gate: Gate, settings: Settings, asked: Asked) -> Record:
    """The problem, and the command that shows it again: parity diff where single steps do."""
    model, sides = settings.runs[0].model, [header["spec"] for header in gate.headers]
    words = ["parity", "diff", "--ref", sides[0], "--dut", sides[1], "--model", asked.model]
    # A file's own storage is no choice of --weights.
    weights = asked.weights or (None if source_of(model) else model.config.weights)
    words += [] if weights is None else ["--weights", weights]
    words += ["--seed", str(problem.seed)]
    # The seed that has a problem is the last one that ran.
    words += _given_prompt(settings.runs[len(gate.seeds) - 1], problem.seed)
    words += ["--n", str(settings.runs[0].n), "--dump-prefill"]
    reproduce = shlex.join(words) if problem.singly else asked.command
    return {**asdict(problem), "reproduce": reproduce}


def _given_prompt(run: Run, seed: int) -> list[str]:
    """``--tokens 1,2,3`` of a run whose prompt is not the one that ``seed`` draws."""
    drawn = tuple(prompt_tokens(seed, PROMPT_LENGTH, run.model.config.ids))
    return [] if run.prompt == drawn else ["--tokens", ",".join(map(str, run.prompt))]


def _code(gate: Gate) -> Record:
    """Whether both sides ran the same compiled code, so far as they tell it."""
    told = all(tells_code(header) for header in gate.headers)
    return {"identical": gate.identical, "told": told}


def _settings(settings: Settings, model: str) -> Record:
    run = settings.runs[0]
    return {
        "model": model,
        "labels": [run.model.label for run in settings.runs],
        "seeds": settings.seeds,
        "sizes": list(settings.sizes),
        "prompt": run.start,
        "n": run.n,
        "rounds": settings.rounds,
        "confidence": float(settings.confidence),
        "margin": MARGIN,
    }


def _equality(seed: Seed) -> Record:
    """What was compared of one seed. ``single_steps``: by parity diff, the prompt's keys too.
    ``outputs``: SHA-256 of the logits and the end state that every pass was held against."""
    tree = seed.tree
    return {
        "seed": seed.seed,
        "tokens": tree.run,
        "weights": {"base": tree.ref.get("weights"), "candidate": tree.dut.get("weights")},
        "single_steps": {
            "verdict": tree.verdict.value,
            "first": tree.first,
            "reason": tree.reason,
            "counts": asdict(tree.counts),
            "states": [{"when": one.when, "first": one.first} for one in tree.states],
            "control": asdict(tree.control) if tree.control else None,
            "notes": tree.notes,
        },
        "outputs": seed.outputs,
        "sizes": [asdict(size) for size in seed.sizes],
        "problem": asdict(seed.problem) if seed.problem else None,
    }


def _statistics(gate: Gate, settings: Settings) -> Record:
    by_size = {str(size): asdict(gate.timings[size]) for size in settings.sizes if gate.timings}
    return {
        "test": TEST,
        "interval": INTERVAL,
        "all": asdict(gate.timings[ALL]) if gate.timings else None,
        "by_size": by_size,
        "corrected": {str(size): asdict(one) for size, one in gate.corrected.items()},
    }


def _clock() -> Record:
    info = time.get_clock_info("perf_counter")
    return {
        "name": f"{now.__module__}.{now.__name__}",
        "implementation": info.implementation,
        "monotonic": info.monotonic,
        "resolution": info.resolution,
    }


def _machine() -> Record:
    return {
        "platform": platform.platform(),
        "python": platform.python_version(),
        "processors": os.cpu_count(),
    }


def not_run_record(error: NotRunError, command: str) -> Record:
    """What is told of a gate that gave no verdict; it is no evidence and not kept."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "verdict": "not_run",
        "exit_status": int(error.exit_status),
        "reason": error.message,
        "next": error.next_step,
        "command": command,
    }


def check_record(entry: Entry) -> Record:
    """The record of an entry, if it is one that this version can show."""
    record = entry.record
    if (record.get("format"), record.get("version")) != (FORMAT, VERSION):
        raise InputError(
            f"{entry.name}: not the evidence of a gate of this version",
            "use the version of parity that wrote it",
        )
    GateVerdict(record["verdict"])
    return record
