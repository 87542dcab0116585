"""Run stress cases under a sanitizer: MODE SOURCES.json GROUP... -> JSON on stdout.

By group: the digest of each case that came to its end, and ``[case, what was said]`` for each case
that a sanitizer spoke of or that did not come to its end. This process has the sanitizer's runtime
(sanitizer_env).
"""

import ctypes
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parity_cuda.emu import EmuModule, KernelFault, build_module
from tests.engines.cuda.op_runner import WroteOutside
from tests.engines.emu.stress import ASCENDING, digest, run
from tests.engines.emu.stress_cases import Case, all_cases

MARK = "\x01"  # begins a line of ours among those of a sanitizer
Results = dict[str, dict[str, list[Any]]]


def say(*words: str, mark: str = MARK) -> None:
    """A line of ours, in order with what the sanitizer writes."""
    os.write(2, f"{mark}{' '.join(words)}\n".encode())


def run_groups(module: EmuModule, cases: Mapping[str, list[Case]]) -> None:
    """Say each case before it runs, and its digest after."""
    for group, listed in cases.items():
        say("group", group)
        for case in listed:
            say("case", str(case))
            try:
                say("digest", digest(run(module, case, ASCENDING)[0]))
            except (KernelFault, WroteOutside) as error:
                say(str(error), mark="")
    say("end")


def forked(module: EmuModule, cases: Mapping[str, list[Case]]) -> list[str]:
    """All that is said of these groups, in a process of its own; it may end before the last."""
    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if not child:
            os.dup2(said.fileno(), 2)
            run_groups(module, cases)
            ctypes.CDLL(None).exit(0)  # C's exit: a sanitizer has its last word there
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        lines = said.read().splitlines()
    if f"{MARK}end" not in lines:
        lines.append(f"the process ended with status {status}")
    return lines


def read(lines: list[str]) -> Results:
    """What ``forked`` gave, by group."""
    found: Results = {}
    group, case = "", ""
    for line in lines:
        what, _, text = line.removeprefix(MARK).partition(" ")
        if what == "ThreadSanitizer:":  # its last word, which counts what it said before
            continue
        if not line.startswith(MARK):
            reports = found[group]["reports"]
            if not reports or reports[-1][0] != case:
                reports.append([case, ""])
            reports[-1][1] += f"{line}\n"
        elif what == "group":
            group = text
            found[group] = {"digests": [], "reports": []}
        elif what == "case":
            case = text
        elif what == "digest":
            found[group]["digests"].append(text)
    return found


def main() -> None:
    mode, sources, *groups = sys.argv[1:]
    texts = json.loads(Path(sources).read_text())
    module = EmuModule(build_module(texts, mode=mode))  # type: ignore[arg-type]
    cases = {group: listed for group, listed in all_cases().items() if group in (groups or [group])}
    # Nothing is launched before the forks: TSan looks away in the child of a process with threads.
    found: Results = {}
    while left := {group: listed for group, listed in cases.items() if group not in found}:
        found |= read(forked(module, left))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
