"""End a process of ours at its N-th call of the file system, for every N: run as a program.

The process forks itself: each child works on a fresh copy of the folder and is killed by its own
SIGKILL at one call, before it or half-way through what it writes; the last child is one that had
no more calls to make. The parent looks at what each of them left.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

CALLS = ("open", "write", "fsync", "close", "link", "rename", "replace", "mkdir", "unlink")
MORE_CALLS = ("remove", "rmdir", "fchmod", "chmod", "listdir", "stat", "scandir")
MOST = 3000  # calls; a command that makes more of them does not end


class Killer:
    """Counts the calls on ``folder`` and on open files; at the one numbered ``at`` the process is
    gone. ``torn``: the writes alone count, and half of the last one is made."""

    def __init__(self, folder: Path, at: int, torn: bool) -> None:
        self.folder, self.at, self.torn, self.count = str(folder), at, torn, 0

    def arm(self) -> None:
        """From here on every call counts."""
        for name in (*CALLS, *MORE_CALLS):
            setattr(os, name, self._counted(name, getattr(os, name)))
        io.open = self._counted("io.open", io.open)  # type: ignore[assignment]

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*args: Any, **named: Any) -> Any:
            counts = (name == "write" or not self.torn) and self._concerns(args)
            self.count += counts
            if counts and self.count == self.at:
                if self.torn:
                    call(args[0], bytes(args[1])[: len(args[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            # A kill needs no disk: what was written stays. Only power cuts do, and syncing is slow.
            return None if name == "fsync" else call(*args, **named)

        return counting

    def _concerns(self, args: tuple[Any, ...]) -> bool:
        """Whether a call is about the folder: by its path, or by an open file."""
        return any(
            isinstance(arg, int) or os.fspath(arg).startswith(self.folder) for arg in args[:1]
        )


def child(work: Callable[[], int], killer: Killer | None) -> int:
    """The status of ``work`` in a child; -9 where it was killed."""
    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            if killer is not None:
                killer.arm()
            status = work()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def at_every_call(
    base: Path, work: Callable[[Path], int], look: Callable[[Path, int], None]
) -> int:
    """Kill ``work`` at each of its calls; ``look`` at what is left. Returns how many were killed.

    ``base``: the folder as it is before, or one that is not there.
    """
    os.fsync = lambda handle: None
    killed = 0
    for torn in (False, True):
        for at in range(1, MOST):
            copy = base.with_name(f"{base.name}-killed")
            shutil.rmtree(copy, ignore_errors=True)
            if base.exists():
                shutil.copytree(base, copy)
            status = child(lambda here=copy: work(here), Killer(copy, at, torn))  # type: ignore[misc]
            if status != -signal.SIGKILL:
                assert status == 0, f"call {at}: ended with {status}"
                break
            killed += 1
            look(copy, at)
        else:
            raise AssertionError("it does not end")
    return killed
