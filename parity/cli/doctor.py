"""``parity doctor``: what this machine can run, and why not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from parity.cli.options import input_files
from parity.cli.reporting import require_writable_reports, write_lines
from parity.errors import ParityBug, ParityError
from parity.model.config import DEFAULT_PRESET
from parity.model.memory import called, free_bytes, size_text, weight_bytes
from parity.model.model import Model, synthetic
from parity.model.opening import open_model
from parity.protocol import EngineSettings
from parity.registry import ENGINES, engine_class, plugins

COMMANDS = ("diff", "dump", "isodiff", "rollback", "ladder")


@dataclass(frozen=True)
class Finding:
    """One line of the doctor: ``ok``, what was found, and what to do when it is not."""

    name: str
    ok: bool
    text: str
    next_step: str = ""


def run_doctor(model: str, weights: str | None, json_path: str | None) -> int:
    """Run ``parity doctor``; exit status 0: it only tells."""
    require_writable_reports(json_path, inputs=input_files(model))
    made = open_model(model, seed=0, weights=weights)
    findings = [_engine_finding(name) for name in plugins(ENGINES)]
    usable = [finding.name for finding in findings if finding.ok]
    broken = [finding.name for finding in findings if not finding.ok]
    memory = _memory(made)
    findings += [_floats(), memory]
    if json_path is not None:
        rows = [asdict(finding) for finding in findings]
        body = {"format": "parity-doctor", "version": 1, "findings": rows}
        write_lines([json.dumps(body)], json_path)
        return 0
    lines = [line for finding in findings for line in _lines(finding)]
    lines += ["", f"can run: {', '.join(COMMANDS)} with {' and '.join(usable) or 'no engine'}"]
    lines += [f"cannot:  anything with {' or '.join(broken)}"] if broken else []
    lines += [] if memory.ok else [f"cannot:  two sides of {called(made)} in this memory"]
    write_lines(lines, "-")
    return 0


def _engine_finding(name: str) -> Finding:
    return _tried(name, lambda: _describe(name))


def _describe(name: str) -> str:
    engine = engine_class(name)(EngineSettings())  # type: ignore[call-arg]
    facts = engine.describe()
    parts = [facts.get("device", ""), facts.get("compiler", ""), f"kernels {facts['kernels']}"]
    return ", ".join(part for part in parts if part)


def _tried(name: str, find: Callable[[], str]) -> Finding:
    try:
        return Finding(name, True, find())
    except ParityError as error:
        return Finding(name, False, error.message.removeprefix(f"{name}: "), error.next_step)
    except ParityBug as error:
        return Finding(name, False, str(error), "reinstall the package that brings it")
    except Exception as error:  # an engine's own fault must not keep the other findings back
        said = (str(error).splitlines() or [""])[0]
        return Finding(name, False, f"{type(error).__name__}: {said}", f"parity diff --dut {name}")


def _floats() -> Finding:
    """The host's own arithmetic: subnormals kept, root and division correctly rounded."""
    tiny = np.array([2.0**-130], np.float32)
    kept = bool(((tiny + tiny).view(np.uint32) == 0x00100000).all())
    third = np.array([1.0], np.float32) / np.array([3.0], np.float32)
    root = np.sqrt(np.array([2.0], np.float32))
    rounded = (
        int(third.view(np.uint32)[0]) == 0x3EAAAAAB and int(root.view(np.uint32)[0]) == 0x3FB504F3
    )
    if kept and rounded:
        return Finding("floats", True, "no flush-to-zero, division and root correctly rounded")
    fault = (
        "subnormals are flushed to zero" if not kept else "division or root is not rounded right"
    )
    return Finding("floats", False, fault, "unload libraries built with -ffast-math")


def _memory(model: Model) -> Finding:
    """Whether the weights fit into free memory, once for each side."""
    needed, name = weight_bytes(model), called(model)
    free = free_bytes()
    text = f"{name} needs {size_text(needed)} a side, {size_text(2 * needed)} for ref and dut"
    if free is None:
        return Finding("memory", True, f"{text}; free memory is not known here")
    if 2 * needed < free:
        return Finding("memory", True, f"{text}; {size_text(free)} free")
    small = synthetic(DEFAULT_PRESET, 0)
    return Finding(
        "memory",
        False,
        f"{text}; {size_text(free)} free",
        f"--model {DEFAULT_PRESET} needs {size_text(weight_bytes(small))} a side",
    )


def _lines(finding: Finding) -> list[str]:
    lines = [f"{finding.name:<7} {'yes' if finding.ok else 'no':<4} {finding.text}"]
    if finding.next_step:
        lines.append(f"{'':12} next: {finding.next_step}")
    return lines
