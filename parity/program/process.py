"""One program that runs: bytes in and out within its limits, and an end that leaves nothing behind.

The program has a session of its own, so that its children can be killed with it. All pipes are
served by one loop: a program that floods one of them, or reads none, blocks nobody.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from parity.errors import InputError
from parity.program.reply import CHECK, Reply
from parity.spec import ProgramSpec

TICK = 0.05  # seconds between two looks at what no pipe tells: the end of the program, its file
GRACE = 2.0  # seconds to end after stdout was closed, so that the status can be told
READ = 1 << 16
KEPT = 1 << 14  # last bytes of stdout and stderr that are kept to be shown
SHOWN, WIDTH = 5, 160  # lines of them that are shown, and characters of a line
MORE_TIME = "give it more time with exec@timeout=SECONDS:..., or end it by itself"
MORE_OUTPUT = "let it write less, or raise the limit with exec@output=BYTES:..."
_ENDED = os.WEXITED | os.WNOHANG | os.WNOWAIT  # not reaped: its group keeps its number


class Process:
    """A started program. ``told``: what its environment gets, None for a variable it must not see.

    ``talks``: requests go to its stdin and replies come from its stdout; else stdin is empty and
    stdout is free. Raises InputError when it cannot be started.
    """

    def __init__(self, spec: ProgramSpec, told: Mapping[str, str | None], *, talks: bool) -> None:
        self.spec = spec
        self._popen = _started(spec, told, talks)
        self._selector = selectors.DefaultSelector()
        self._reply: Reply | None = None
        self._unsent = memoryview(b"")
        self._said = self._logged = b""  # the end of stdout (of one that does not talk), of stderr
        self._written = 0  # bytes since the run or the request began
        self._silent = False  # stdout reached its end
        self._watch(self._popen.stdout, self._take_out)
        self._watch(self._popen.stderr, self._take_log)

    def ask(self, request: bytes, reply: Reply) -> None:
        """Send ``request``, whole lines, and fill ``reply`` until it is complete.

        Raises InputError for a program that ends, hangs or floods, and for a line that is not of
        the reply; whatever is raised, the program is stopped.
        """
        with self._stopped_on_error():
            self._drain()  # what was said before it was asked for
            self._reply, self._written = reply, 0
            if self._said:
                early = self._said.decode("utf-8", "replace")
                reply.refuse("it wrote this before it was asked", early)
            self._send(request)
            self._serve(lambda: reply.complete and not self._unsent, self._require_talking)
            self._reply = None

    def finish(self, watch: Callable[[], None]) -> int:
        """Serve the program until it ends by itself; its status, negative for a signal. ``watch``
        is called again and again, and may raise. Its children are gone then."""
        with self._stopped_on_error():
            self._serve(self.ended, watch)
            self._drain()
            watch()
        status = self._status()
        self.stop()
        return status

    def stop(self) -> None:
        """Kill the program with its children and reap it; twice is once."""
        if self._popen.returncode is not None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()
        self._selector.close()
        for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            if pipe is not None:
                pipe.close()

    def ended(self) -> bool:
        """Whether the program ended, by itself or stopped."""
        return self._popen.returncode is not None or self._waited() is not None

    def failed(self, what: str, next_step: str) -> InputError:
        """The error of a program that did ``what``, with the end of what it said."""
        lines = _last_lines(self._logged) or _last_lines(self._said)
        if len(lines) > 1:
            next_step = "\n".join([next_step, "it said at the end:", *lines])
        asked = "" if self._reply is None else f"{self._reply.asked}: "
        said = lines[-1] if lines else "it said nothing"
        return InputError(f"{self.spec.text}: {asked}{what}: {said}", next_step)

    # --- serving the pipes

    @contextmanager
    def _stopped_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.stop()
            raise

    def _serve(self, done: Callable[[], bool], watch: Callable[[], None]) -> None:
        end = time.monotonic() + self.spec.timeout
        while not done():
            left = end - time.monotonic()
            if left <= 0:
                raise self.failed(f"no end after {self.spec.timeout:g} s", MORE_TIME)
            self._take(min(left, TICK))
            if self._written > self.spec.output:
                raise self.failed(f"wrote more than {self.spec.output:,} bytes", MORE_OUTPUT)
            watch()

    def _take(self, seconds: float) -> bool:
        """Serve each pipe that is ready within some time once; whether one was."""
        ready = self._selector.select(seconds)
        for key, _ in ready:
            key.data()
        return bool(ready)

    def _drain(self) -> None:
        """Take what stands in the pipes now; a child that goes on writing meets the limit."""
        while self._written <= self.spec.output and self._take(0):
            pass

    def _require_talking(self) -> None:
        """A reply cannot become complete once the program, or its stdout, has ended."""
        if not (self._silent or self.ended()):
            return
        end = time.monotonic() + GRACE
        while not self.ended() and time.monotonic() < end:
            self._take(TICK)
        self._drain()
        if self._reply is not None and not self._reply.complete:
            how = ending(self._status()) if self.ended() else "closed stdout"
            raise self.failed(f"{how} before its reply was complete", CHECK)

    def _send(self, request: bytes) -> None:
        assert self._popen.stdin is not None
        self._unsent = memoryview(request)
        os.set_blocking(self._popen.stdin.fileno(), False)
        self._selector.register(self._popen.stdin, selectors.EVENT_WRITE, self._give)

    def _give(self) -> None:
        assert self._popen.stdin is not None
        try:
            sent = os.write(self._popen.stdin.fileno(), self._unsent[:READ])
        except BlockingIOError:
            return
        except BrokenPipeError:
            sent = len(self._unsent)  # nobody reads on: the reply, or its lack, will tell
        self._unsent = self._unsent[sent:]
        if not self._unsent:
            self._selector.unregister(self._popen.stdin)

    def _watch(self, pipe: object, taken: Callable[[bytes], None]) -> None:
        descriptor: int = pipe.fileno()  # type: ignore[attr-defined]
        os.set_blocking(descriptor, False)
        self._selector.register(
            descriptor, selectors.EVENT_READ, lambda: self._read(descriptor, taken)
        )

    def _read(self, descriptor: int, taken: Callable[[bytes], None]) -> None:
        try:
            data = os.read(descriptor, READ)
        except BlockingIOError:
            return
        self._written += len(data)
        if not data:
            self._selector.unregister(descriptor)
        taken(data)

    def _take_out(self, data: bytes) -> None:
        self._silent = self._silent or not data
        if self._reply is None:
            self._said = (self._said + data)[-KEPT:]
        else:
            self._reply.feed(data)

    def _take_log(self, data: bytes) -> None:
        self._logged = (self._logged + data)[-KEPT:]

    # --- how it ended

    def _waited(self) -> os.waitid_result | None:
        return os.waitid(os.P_PID, self._popen.pid, _ENDED)

    def _status(self) -> int:
        """The status of a program that ended, negative for a signal."""
        found = self._waited()
        assert found is not None
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


def ending(status: int) -> str:
    """``ended with status 4``, or ``was ended by SIGKILL`` for -9."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


def _started(
    spec: ProgramSpec, told: Mapping[str, str | None], talks: bool
) -> subprocess.Popen[bytes]:
    environment = {**os.environ, **told}
    try:
        return subprocess.Popen(
            spec.command,
            bufsize=0,
            stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={name: value for name, value in environment.items() if value is not None},
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise InputError(
            f"{spec.text}: cannot be started: {getattr(error, 'strerror', None) or error}",
            f"check the path of {spec.command[0]}",
        ) from error


def _last_lines(said: bytes) -> list[str]:
    """The last lines that are not blank, each cut to a width."""
    lines = [line.strip() for line in said.decode("utf-8", "replace").splitlines()]
    return [line[:WIDTH] for line in lines if line][-SHOWN:]
