"""The states of an accepted run, one digest a row: enough to say which row of which part differs.

A digest is taken over the row's dtype, shape and bytes. Digests of rows compare as rows do: the
dicts made here go where states go.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from parity.dtypes import dtype_name, tensor_bytes
from parity.dump import Dump
from parity.runs.run import SideRun, State
from parity.store import canonical

WHEN = ("start", "end")


def states_text(run: SideRun) -> bytes:
    """The states of ``run`` before the first and after the last decoded step, as canonical JSON;
    null for an engine that cannot give them."""
    held = zip(WHEN, (run.start, run.end), strict=True)
    return canonical({when: None if state is None else _digits(state) for when, state in held})


def digested(run: SideRun) -> SideRun:
    """``run`` with uint64[rows] digests in the place of each part of its states."""
    start, end = (None if s is None else _digests(s) for s in (run.start, run.end))
    return replace(run, start=start, end=end)


def read_states(data: bytes | None) -> SideRun:
    """What ``states_text`` wrote, as a run that holds nothing else."""
    held: Mapping[str, Any] = {} if data is None else json.loads(data)
    start, end = (_parsed(held.get(when)) for when in WHEN)
    return SideRun(Dump(), [], {}, start, end)


def _parsed(state: Mapping[str, list[str]] | None) -> State | None:
    if state is None:
        return None
    return {
        name: np.array([int(row, 16) for row in rows], np.uint64) for name, rows in state.items()
    }


def _digits(state: State) -> dict[str, list[str]]:
    return {name: [f"{row:016x}" for row in rows] for name, rows in _digests(state).items()}


def _digests(state: State) -> State:
    return {name: _rows(part) for name, part in state.items()}


def _rows(part: np.ndarray) -> np.ndarray:
    """One digest a row; a part without rows has none."""
    rows = np.atleast_1d(part)
    kind = f"{dtype_name(rows.dtype)}{list(rows.shape[1:])} ".encode()
    found = [hashlib.sha256(kind + tensor_bytes(row)).digest()[:8] for row in rows]
    return np.array([int.from_bytes(digest, "big") for digest in found], np.uint64)
