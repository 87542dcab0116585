"""Write a dump file (docs/dump-format.md): whole or not at all, and never over another one."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

from parity.dump import CONTROL, FORMAT, HEADER_NAME, HEADER_NAMES, MAIN, Dump
from parity.errors import InputError, ParityBug

_BLOCK = 1 << 12  # lines


def write_dump(dump: Dump, path: Path, *, plain: bool = False, force: bool = False) -> None:
    """Write ``dump`` to the file ``path`` (``-`` is standard output).

    ``plain`` leaves out the type and nonfinite columns. The file appears whole, under its name,
    or not at all; of two writers at the same time one is refused. Raises InputError when the file
    exists (unless ``force``) or cannot be written.
    """
    lines = _blocks(format_lines(dump, plain))
    if str(path) == "-":
        sys.stdout.flush()
        sys.stdout.buffer.writelines(lines)
        sys.stdout.buffer.flush()
        return
    with named_errors(path):
        _write_file(lines, Path(os.path.realpath(path)), force)


def _blocks(lines: Iterator[str]) -> Iterator[bytes]:
    """The text of many lines together."""
    while block := list(islice(lines, _BLOCK)):
        yield ("\n".join(block) + "\n").encode()


def format_lines(dump: Dump, plain: bool) -> Iterator[str]:
    """The lines of ``dump`` without line ends: header, then each segment (the unnamed one first).

    ``plain``: two columns, tag and digest. Raises InputError for a header value that does not fit
    on one line, ParityBug for a key or name that no dump may hold.
    """
    from parity.dumps.table import Table  # NumPy on use only
    from parity.dumps.texts import record_lines

    yield from _header_lines(dump.header)
    for name in sorted(dump.segments, key=lambda name: name != MAIN):
        if name != MAIN:
            yield f"# segment {_checked('segment', name)}"
        yield from record_lines(Table.of(dump.segments[name]), plain=plain)


def _header_lines(header: dict[str, str]) -> Iterator[str]:
    values = {"hash": "fnv1a64"} | header | {"format": FORMAT}
    known = [name for name in HEADER_NAMES if name in values]
    for name in known + [name for name in values if name not in HEADER_NAMES]:
        if HEADER_NAME.fullmatch(name) is None or name == "segment":
            raise ParityBug(f"a dump cannot hold the header name {name!r}")
        yield f"# {name} {_checked(name, values[name])}".rstrip(" ")


def _checked(name: str, value: str) -> str:
    if CONTROL.search(value):
        raise InputError(
            f"header {name}: a line break or control character in {value!r}",
            "give a name without it",
        )
    return value


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into an InputError that names ``path``."""
    try:
        yield
    except FileExistsError as error:
        raise InputError(
            f"{path}: exists already", "choose another name, or give --force to replace it"
        ) from error
    except OSError as error:
        raise InputError(
            f"{path}: cannot write: {error.strerror}", "choose a place that can be written"
        ) from error


def _write_file(lines: Iterable[bytes], real: Path, force: bool) -> None:
    """Write beside ``real``, then publish under its name; a device or pipe is written into."""
    if real.exists() and not real.is_file() and not real.is_dir():
        with real.open("wb") as stream:
            stream.writelines(lines)
        return
    beside = name_beside(real)
    try:
        with beside.open("xb") as stream:
            stream.writelines(lines)
        publish(beside, real, force=force)
    finally:
        with suppress(FileNotFoundError):
            beside.unlink()


def name_beside(real: Path) -> Path:
    """A new name in the folder of ``real``, for what is to be published under that name."""
    return real.with_name(f".{real.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")


def publish(beside: Path, real: Path, *, force: bool) -> None:
    """Give ``beside`` the name ``real``; without ``force`` FileExistsError where that exists, also
    when another writer was quicker."""
    if force:
        os.replace(beside, real)
        return
    try:
        os.link(beside, real)
    except FileExistsError:
        raise
    except OSError:
        # No hard links here (FAT, some network disks): claim the name, then move over the claim.
        os.close(os.open(real, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        os.replace(beside, real)
