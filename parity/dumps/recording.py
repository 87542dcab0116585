"""``parity.record``: a tap for code in Python that writes a dump of the arrays it is given.

with parity.record("gpu.txt", engine="mine") as tap:
    tap(pos, layer, "attn", attn)
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from parity.dump import CONTROL, FORMAT, HEADER_NAME, MAIN, PARTIAL, Dump, Entry, TensorType
from parity.dumps.writer import write_dump
from parity.errors import InputError
from parity.keys import FREE, LARGEST, Key

if TYPE_CHECKING:
    from parity.dumps.tensor_files import Loader, Tensor
    from parity.dumps.tensor_writer import TensorWriter

Fact = str | int | Sequence[int]
_OWN = frozenset({"format", "hash", "segment", PARTIAL})  # header names that a recorder writes
_KEY = "position 0 or more, layer 0 or more or None, field of letters, digits, _ . -"
_HERE = __file__


class Recorder:
    """One recording. A context manager that gives the tap: itself. Threads may share it."""

    def __init__(
        self,
        path: Path | None,
        header: Mapping[str, Fact],
        *,
        hash_name: str,
        tensors: Path | None,
        keep: Collection[str] | None,
        mark_nonfinite: bool,
        keep_partial: bool,
        force: bool,
    ) -> None:
        self._path, self._tensors, self._force = path, tensors, force
        self._header: dict[str, str] = {"format": FORMAT, "hash": hash_name}
        self._unkept = set(keep or ())
        self._keep = None if keep is None else frozenset(keep)
        self._mark_nonfinite, self._keep_partial = mark_nonfinite, keep_partial
        self._segments: dict[str, list[Entry]] = {MAIN: []}
        self._taken: dict[tuple[str, Key], str] = {}  # where each key was recorded
        self._choices: dict[int, int] = {}
        self._refusal = ""
        self._unfinished = "the recording goes on"
        self._state = "not begun"
        self._writer: TensorWriter | None = None
        self._lock = threading.RLock()
        self.describe(**header)

    def __call__(
        self, pos: int, layer: int | None, field: str, array: Any, *, dtype: str | None = None
    ) -> None:
        """Record ``array`` under the key ``t<pos>_l<layer>_<field>``.

        ``pos``: position in the sequence, from 0. ``layer``: from 0; None for a field outside the
        layers (``final_normed``, ``logits``). ``array``: any shape, strides and byte order, on the
        host or on a device, of f16, bf16, f32, f64, int8 to int64, uint8 to uint64 or bool; it is
        read before the call returns, and never written to. ``dtype``: the dtype it must have, as a
        dump names it; ``"bf16"`` for bf16 bits in an array of 16-bit integers.

        Raises InputError for a key that was recorded already (naming both places), for what has no
        key's form, and for what is no such array. A recording with a refused tap is not written.
        """
        self._record(MAIN, pos, layer, field, array, dtype)

    def segment(self, name: str) -> Segment:
        """A tap for the keys of another segment: positions that the run visits once more."""
        if not name or name != name.strip() or CONTROL.search(name):
            raise InputError(f"segment {name!r}: not a name", "give one line of text")
        with self._lock:
            self._segments.setdefault(name, [])
        return Segment(self, name)

    def choose(self, pos: int, token: int) -> None:
        """Note the greedy choice at ``pos``: level ``greedy`` needs it from both sides."""
        at, chosen = whole_number(pos, "position"), whole_number(token, "token")
        if max(at, chosen) > LARGEST:  # a token id has as many digits
            raise InputError(f"choice {at}:{chosen}: past {LARGEST:,}", "give smaller numbers")
        with self._lock:
            self._choices[at] = chosen

    def describe(self, **facts: Fact) -> None:
        """Add header values: ``model="mine 7b"``, ``tokens=[1, 2, 3]``, ``device="..."``.

        A sequence of integers is written ``1,2,3``. Raises InputError for a name or value that no
        header can hold.
        """
        made = {name: _fact(name, value) for name, value in facts.items()}
        with self._lock:
            self._header |= made

    @property
    def dump(self) -> Dump:
        """What was recorded, as a dump in memory: marked partial before the block has ended, and
        after one that did not end well."""
        from parity.dumps.greedy import format_greedy

        with self._lock:
            header = dict(self._header)
            if self._choices:
                header["greedy"] = format_greedy(self._choices)
            if self._unfinished:
                header[PARTIAL] = self._unfinished
            segments = {name: list(found) for name, found in self._segments.items()}
        source = str(self._path) if self._path else f"recording of {header.get('engine', '')}"
        return Dump(header, segments, source)

    @property
    def load(self) -> Loader | None:
        """The loader of the raw tensors, by tag (``segment/tag`` in a segment), of a recording that
        ended well and kept them; else None. It raises KeyError for one that was not kept."""
        from parity.dumps.tensor_files import read_tensors

        if self._tensors is None or self._unfinished:
            return None
        return read_tensors(self._tensors)[1]

    def __enter__(self) -> Recorder:
        if self._state != "not begun":
            raise InputError(f"the recording has {self._state}", "make a new one for each with")
        if self._tensors is not None:
            from parity.dumps.tensor_writer import open_writer

            self._writer = open_writer(self._tensors, force=self._force)
        self._state = "begun"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._state = "ended"
            try:
                self._end(error)
            finally:
                if self._writer is not None:
                    self._writer.discard()

    def _end(self, error: BaseException | None) -> None:
        if error is not None:
            last = next(reversed(self._taken), None)
            self._unfinished = f"{type(error).__name__} " + (
                f"after {last[1]}" if last else "before the first key"
            )
            self._keep_what_there_is(error)
        elif self._refusal:
            self._unfinished = f"a tap was refused: {self._refusal}"
            raise InputError(
                f"not written: a tap was refused, and the program went on: {self._refusal}",
                "mend that call, or let its error end the recording",
            )
        else:
            self._unfinished = ""
            self._write_whole()

    def _keep_what_there_is(self, error: BaseException) -> None:
        """The error that ended the block goes on; a whole dump of that name is worth more."""
        if self._path is None or not self._keep_partial:
            return
        try:
            write_dump(self.dump, self._path)
        except InputError as problem:
            error.add_note(f"parity: the partial dump was not written: {problem.message}")

    def _write_whole(self) -> None:
        for name in sorted(self._unkept):
            warnings.warn(f"keep: no key and no field {name} was recorded", stacklevel=4)
        if self._writer is not None:
            self._writer.publish()
        try:
            if self._path is not None:
                write_dump(self.dump, self._path, force=self._force)
        except InputError:
            if self._tensors is not None and not self._force:
                self._tensors.unlink()  # both files or none
            raise

    def _record(
        self, segment: str, pos: Any, layer: Any, field: Any, array: Any, dtype: str | None
    ) -> None:
        try:
            key = _key(pos, layer, field)
            with self._lock:
                self._add(segment, key, array, dtype)
        except InputError as error:
            self._refusal = self._refusal or error.message
            raise

    def _add(self, segment: str, key: Key, array: Any, dtype: str | None) -> None:
        if self._state != "begun":
            raise InputError(f"{key}: the recording has {self._state}", "tap inside its with block")
        self._require_new(segment, key)
        try:
            from parity.dumps.host_arrays import host_tensor

            tensor = host_tensor(array, dtype)
            if self._writer is not None and self._keeps(key):
                self._writer.add(f"{segment}/{key}" if segment else key.tag, tensor)
        except InputError as error:
            raise InputError(f"{key}: {error.message}", error.next_step) from error
        self._segments[segment].append(self._entry(key, tensor))
        self._taken[segment, key] = _caller()

    def _require_new(self, segment: str, key: Key) -> None:
        where = self._taken.get((segment, key))
        if where is not None:
            raise InputError(
                f"{key} was recorded already at {where}, and again at {_caller()}",
                "record each key once; a position visited again is a tap.segment(NAME)",
            )

    def _keeps(self, key: Key) -> bool:
        self._unkept -= {key.tag, key.field}
        return self._keep is None or key.tag in self._keep or key.field in self._keep

    def _entry(self, key: Key, tensor: Tensor) -> Entry:
        from parity.dumps.host_arrays import nonfinite_of
        from parity.fnv import BASES, fnv1a64_array

        digest = fnv1a64_array(tensor.array, BASES[self._header["hash"]])
        kind = TensorType(tensor.dtype, tensor.array.shape)
        return Entry(key, digest, kind, nonfinite_of(tensor) if self._mark_nonfinite else None)


class Segment:
    """The tap of one segment; see ``Recorder.segment``."""

    def __init__(self, recorder: Recorder, name: str) -> None:
        self._recorder, self._name = recorder, name

    def __call__(
        self, pos: int, layer: int | None, field: str, array: Any, *, dtype: str | None = None
    ) -> None:
        """Record ``array`` in this segment, as ``Recorder`` does in the unnamed one."""
        self._recorder._record(self._name, pos, layer, field, array, dtype)


def record(
    path: str | os.PathLike[str] | None,
    *,
    engine: str,
    version: str = "",
    model: str = "",
    tokens: Sequence[int] = (),
    header: Mapping[str, Fact] | None = None,
    hash: str = "fnv1a64",
    tensors: str | os.PathLike[str] | None = None,
    keep: Collection[str] | None = None,
    mark_nonfinite: bool = True,
    keep_partial: bool = False,
    force: bool = False,
) -> Recorder:
    """A recording, to be used in a ``with`` statement, which gives its tap.

    ``path``: the dump file to write; None keeps the dump in memory (``tap.dump``). ``engine``,
    ``version``, ``model``, ``tokens`` (all ids fed, prompt first) and ``header`` (any other name)
    are the dump's header; ``tap.describe`` adds to it later. ``hash``: ``fnv1a64`` or
    ``kestrel-fnv``. ``tensors``: a ``.npz`` or ``.safetensors`` file for the raw arrays too, of all
    keys or of ``keep``: tags and field names. ``mark_nonfinite``: a NaN or an infinity ends what is
    comparable; False where they belong there, as in masked scores. ``force``: replace files.

    The files appear whole when the block ends, or not at all. An exception in the block leaves no
    file; with ``keep_partial`` the dump of what was recorded, marked partial, but no tensors. Taps
    change nothing: arrays are read, on a device after what was queued before.

    Raises InputError before the block for a name that is taken or cannot be written.

    >>> import numpy, parity
    >>> with parity.record(None, engine="mine", tokens=[5]) as tap:
    ...     tap(0, 0, "attn", numpy.ones((2, 4), numpy.float32))
    ...     tap(0, None, "logits", numpy.arange(16, dtype=numpy.float32))
    >>> [str(entry.key) for entry in tap.dump.entries]
    ['t0_l0_attn', 't0_logits']
    >>> tap.dump.entries[1].value_text()
    '13fdf84d829c1708 f32[16]'
    """
    from parity.fnv import BASES

    if hash not in BASES:
        raise InputError(f"hash {hash!r}: no such hash", f"hashes: {', '.join(BASES)}")
    if isinstance(keep, str):
        raise InputError(f"keep {keep!r}: a text, not names", f"write keep=[{keep!r}]")
    if keep is not None and tensors is None:
        raise InputError("keep without tensors: nothing is kept", "name a file: tensors='x.npz'")
    if path is not None and Path(path).suffix in (".npz", ".safetensors"):
        raise InputError(
            f"{os.fspath(path)}: a dump is text, and its name is that of a tensor file",
            "name it .dump or .txt; the arrays are kept with tensors=",
        )
    dump, raw = (None if name is None else _new_file(name, force) for name in (path, tensors))
    facts: dict[str, Fact] = {"engine": engine, "version": version, "model": model}
    facts = {name: value for name, value in {**facts, "tokens": tokens}.items() if len(value)}  # type: ignore[arg-type]
    return Recorder(
        dump,
        facts | dict(header or {}),
        hash_name=hash,
        tensors=raw,
        keep=keep,
        mark_nonfinite=mark_nonfinite,
        keep_partial=keep_partial,
        force=force,
    )


def _new_file(name: str | os.PathLike[str], force: bool) -> Path:
    from parity.presenting import STDOUT, require_writable

    path = Path(name)
    if str(path) in (STDOUT, "."):
        raise InputError(f"{str(name)!r} is no file name", "name a file, or None for no file")
    if path.is_file() and not force:
        raise InputError(f"{path}: exists already", "give another name, or force=True")
    require_writable(str(path))
    return path


def _key(pos: Any, layer: Any, field: Any) -> Key:
    """The key of these parts; InputError where a dump cannot hold it."""
    at = whole_number(pos, "position")
    within = None if layer is None else whole_number(layer, "layer")
    if not isinstance(field, str):
        raise InputError(f"field {field!r}: not a text", _KEY)
    key = Key(at, within, field)
    if Key.of_name(key.tag) != key or at == FREE:
        raise InputError(f"{key.tag!r} is not a key", _KEY)
    return key


def whole_number(value: Any, what: str) -> int:
    """``value`` as an integer from 0; any integer type but bool."""
    try:
        number = -1 if isinstance(value, bool | str) else value.__index__()
    except (AttributeError, TypeError):
        number = -1
    if number < 0:
        _refuse_number(value, what)
    return int(number)


def _refuse_number(value: Any, what: str) -> NoReturn:
    raise InputError(f"{what} {value!r}: not an integer from 0", f"give the {what} as an int")


def _fact(name: str, value: Fact) -> str:
    """A header value as text; InputError where a header cannot hold it under that name."""
    if HEADER_NAME.fullmatch(name) is None or name in _OWN:
        raise InputError(f"header name {name!r} cannot be given", "small letters, digits, _ . -")
    if not isinstance(value, str | int):
        value = ",".join(str(whole_number(part, name)) for part in value)
    text = str(value)
    if CONTROL.search(text) or text != text.strip():
        raise InputError(f"header {name}: {text!r} is not one line of text", "give it without that")
    return text


def _caller() -> str:
    """File and line of the call that came from outside of this module."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename == _HERE and frame.f_back is not None:
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
