"""Line mode (docs/exec.md): requests to one program that runs, and its replies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from parity.errors import InputError, NotRunError
from parity.program import codec
from parity.program.codec import PROTOCOL, Hello
from parity.program.dump_mode import TOLD
from parity.program.process import Process, ending
from parity.program.reply import CHECK, Reply
from parity.spec import ProgramSpec

Value = TypeVar("Value")
OLD = "it can be the dut of parity diff as it is; docs/exec.md says what line mode is"


class Talk:
    """A program in line mode that answered ``hello``.

    Raises NotRunError for a program without line mode, InputError for one that cannot be started
    or answers it wrongly.
    """

    def __init__(self, spec: ProgramSpec) -> None:
        told: dict[str, str | None] = dict.fromkeys(TOLD)
        self.spec = spec
        self._process = Process(spec, {**told, "PARITY_PROTOCOL": str(PROTOCOL)}, talks=True)
        self._over: InputError | None = None  # why there is nobody to talk to any more
        self.hello = self._greet()

    def ask(
        self,
        request: str,
        begins: str,
        read: Callable[[Reply], Value],
        lines: Sequence[str] = (),
    ) -> Value:
        """Send a request, with ``lines`` after it; what ``read`` makes of the data lines.

        Raises InputError with the program's own text where it answers ``error``, and goes on. Any
        other failure stops the program, and every later request fails with the same error.
        """
        if self._over is not None:
            raise self._over
        reply = Reply(self.spec.text, request, begins)
        try:
            self._process.ask("".join(f"{line}\n" for line in (request, *lines)).encode(), reply)
            if reply.error is None:
                return read(reply)
        except BaseException as error:
            stopped = InputError(f"{self.spec.text}: was stopped", "run again")
            self._over = error if isinstance(error, InputError) else stopped
            self.stop()
            raise
        raise InputError(f"{self.spec.text}: {reply.asked}: {reply.error_text}", CHECK)

    def stop(self) -> None:
        """End the program, whatever it does, with its children."""
        self._process.stop()

    def quit(self) -> None:
        """Let the program end by itself; InputError where it does not end well."""
        self.ask("quit", codec.NOTHING, codec.read_nothing)
        status = self._process.finish(lambda: None)
        if status != 0:
            raise self._process.failed(f"{ending(status)} after quit", CHECK)

    def _greet(self) -> Hello:
        reply = Reply(self.spec.text, f"hello {PROTOCOL}", codec.HELLO)
        try:
            self._process.ask(f"{reply.request}\n".encode(), reply)
            if reply.error is None and reply.lines[:1] != ["protocol 1"]:
                return codec.read_hello(reply)
        except InputError as error:
            self.stop()
            if any(line.startswith("protocol ") for line in reply.lines[:1]):
                raise
            raise NotRunError(no_line_mode(self.spec, error.message), OLD) from error
        except BaseException:
            self.stop()
            raise
        self.stop()
        said = reply.error_text if reply.error is not None else "it speaks protocol 1"
        raise NotRunError(no_line_mode(self.spec, said), OLD)


def no_line_mode(spec: ProgramSpec, why: str) -> str:
    """The message about a program that only writes dumps."""
    return f"{spec.text} has no line mode: {why.removeprefix(f'{spec.text}: ')}"
