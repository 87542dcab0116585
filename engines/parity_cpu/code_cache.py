"""Machine code on disk, and the digest of what is loaded. Takes the place of Numba's own cache.

Numba's cache watches one file by its date: a changed helper of another file, a flipped module-level
flag, another ``NUMBA_OPT`` or a damaged file go unnoticed. Here an entry is found by a digest over
the function in memory and all it refers to, its types, the processor and the compiler, and it is
believed only when its content has the seal it was kept with.
"""

from __future__ import annotations

import hashlib
import itertools
import pickle
import platform
import re
import secrets
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from llvmlite.binding.object_file import ObjectFileRef
from numba.core import config, types
from numba.core.bytecode import FunctionIdentity
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic
from numba.core.serialize import dumps

from parity.builds.cache import seal, write_whole
from parity.builds.fingerprint import Reads, fingerprint
from parity.errors import ParityBug

# Settings of Numba that change what it makes of a function; the processor's are told apart.
SETTINGS = (
    *("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "BOUNDSCHECK", "DEBUGINFO_DEFAULT", "USING_SVML"),
    *("LLVM_REFPRUNE_PASS", "LLVM_REFPRUNE_FLAGS", "DISABLE_INTEL_SVML", "CAPTURED_ERRORS"),
)
# What of a mangled name is another one in every process: the number above, and an address.
_NUMBERED = re.compile(rb"B\d+v\d+|(?<=__numba_parfor_gufunc_)0x[0-9a-f]+")
_KEPT = re.compile(rb"text|rodata|const|literal|cstring")  # sections that are run or read
_SEAL = 64  # hex digits before the content of an entry

# Numba counts functions from 1 and puts the number into the names of their code, so that a function
# compiled here and one compiled in another process and loaded could have one name for two codes.
# All of one width: the layout of an object file does not depend on it.
FunctionIdentity._unique_ids = itertools.count(10**18 + secrets.randbelow(10**18))

_caches: list[CodeCache] = []  # one a compiled function, as long as the process lives
_mangled: set[str] = set()
_reads = Reads()  # what all kept functions read when they were compiled


class CodeCache(_Cache):  # type: ignore[misc]
    """The code of one compiled function; ``folder``: where it is kept, None for nowhere."""

    def __init__(self, dispatcher: Any, folder: Path | None) -> None:
        self.dispatcher, self.folder = dispatcher, folder
        self.codes: dict[Any, str] = {}  # digest of the machine code by argument types
        # Of the function as it was when code of it was first wanted; "" where nobody can tell.
        self.made_of: str | None = None
        _caches.append(self)
        dispatcher._cache = self

    @property
    def cache_path(self) -> str | None:
        """Where entries lie, for Numba's statistics."""
        return None if self.folder is None else str(self.folder)

    def load_overload(self, sig: Any, target_context: Any) -> CompileResult | None:
        """The kept code for these types, or None: for it to be compiled."""
        forget_changed()  # a helper's code that is in memory would be linked in
        self.made_of = self.made_of or _fingerprint(self.dispatcher)
        if self.folder is None or not self.made_of:
            return None
        target_context.refresh()
        kept = self._read(self._path(sig, target_context.codegen()))
        if kept is None or kept["mangled"] in _mangled:  # of that name other code is in memory
            return None
        _mangled.add(kept["mangled"])
        self.codes[kept["types"]] = kept["code"]
        return CompileResult._rebuild(target_context, *pickle.loads(kept["result"]))

    def save_overload(self, sig: Any, data: CompileResult) -> None:
        """Keep what was compiled, and its digest."""
        if data.fndesc.mangled_name in _mangled:
            raise ParityBug(f"{self.name}: two codes of one name: start a new process")
        _mangled.add(data.fndesc.mangled_name)
        library = data._asdict()["library"]
        code = machine_digest(library._get_compiled_object())
        self.codes[data.signature.args] = code
        if not (self.folder and self.made_of) or library.has_dynamic_globals or data.lifted:
            return
        codegen = library.codegen
        entry = {
            "mangled": data.fndesc.mangled_name,
            "types": data.signature.args,
            "code": code,
            "result": dumps(data._reduce()),
        }
        path = self._path(sig, codegen)
        content = dumps(entry)
        with suppress(OSError):  # nothing is lost but time
            write_whole(path, seal(path.name, content).encode() + content)

    def enable(self) -> None:
        """Entries are always looked for."""

    def disable(self) -> None:
        """See ``enable``."""

    def flush(self) -> None:
        """Nothing to throw away: other code has another name."""

    @property
    def name(self) -> str:
        """``parity_cpu.ops.rmsnorm.rmsnorm``."""
        function = self.dispatcher.py_func
        return f"{function.__module__}.{function.__qualname__}"

    def _path(self, sig: Any, codegen: Any) -> Path:
        assert self.folder is not None
        key = repr((self.made_of, str(sig), codegen.magic_tuple(), _compiler()))
        short = self.name.partition(".")[2].replace("<locals>.", "")
        return self.folder / f"{short}-{hashlib.sha256(key.encode()).hexdigest()[:32]}.nbc"

    def _read(self, path: Path) -> dict[str, Any] | None:
        """An entry whose content is what was kept under this name; else None."""
        try:
            data = path.read_bytes()
        except OSError:
            return None
        content = data[_SEAL:]
        if data[:_SEAL] != seal(path.name, content).encode():
            return None
        entry: dict[str, Any] = pickle.loads(content)
        return entry


def machine_digest(compiled: bytes) -> str:
    """sha256 (hex) over the instructions, constants and outer names of an object file.

    The numbers that Numba puts into names are left out: they differ from process to process.
    """
    digest = hashlib.sha256()
    for section in ObjectFileRef.from_data(compiled).sections():
        name = section.name() or b""
        data = _NUMBERED.sub(b"", section.data())
        if name == b".strtab":
            data = b"\0".join(sorted(data.split(b"\0")))
        elif not _KEPT.search(name) or name.startswith(b".rel"):
            continue
        digest.update(b"%s %d\n" % (name, len(data)) + data)
    return digest.hexdigest()


def loaded_code(functions: Iterable[Any]) -> str:
    """16 hex digits over the machine code in memory of ``functions``, in any order; "" of none."""
    caches = (getattr(function, "_cache", None) for function in functions)
    rows = {
        f"{kept.name} {types} {code}\n"
        for kept in caches
        if isinstance(kept, CodeCache)
        for types, code in kept.codes.items()
    }
    return hashlib.sha256("".join(sorted(rows)).encode()).hexdigest()[:16] if rows else ""


def forget_changed() -> list[str]:
    """Drop the code of functions that now read other values than when they were compiled.

    A module-level flag is frozen into machine code: flipped, it must lead to other code. The next
    call compiles. Returns the names of the functions.
    """
    global _reads
    if not _reads.changed():
        return []
    _reads = Reads()  # taken down anew
    changed = [
        kept for kept in _caches if kept.made_of and kept.made_of != _fingerprint(kept.dispatcher)
    ]
    for kept in changed:
        kept.dispatcher._make_finalizer()()
        kept.dispatcher._reset_overloads()
        kept.codes.clear()
        kept.made_of = None
    return [kept.name for kept in changed]


def _fingerprint(dispatcher: Any) -> str:
    """Of a function and how it is compiled; "" where it reads a value that nobody can tell."""
    try:
        return fingerprint(dispatcher.py_func, _expand, _reads) + repr(sorted(_options(dispatcher)))
    except TypeError:
        return ""


def _options(dispatcher: Any) -> list[tuple[str, str]]:
    return [(name, str(value)) for name, value in dispatcher.targetoptions.items()]


def _expand(value: Any) -> tuple[str, tuple[Any, ...]] | None:
    """What a compiled function refers to beside plain values."""
    if isinstance(value, Dispatcher):
        return f"compiled {sorted(_options(value))}", (value.py_func,)
    if isinstance(value, _Intrinsic):
        return "intrinsic", (value._defn,)
    if isinstance(value, types.ExternalFunction):
        return f"external {value.symbol} {value.sig}", ()
    if isinstance(value, types.Type):
        return f"type {value}", ()
    if type(value).__module__.startswith("llvmlite."):
        return f"llvm {value}", ()
    return None


@cache
def _compiler() -> tuple[str, ...]:
    """What compiles here: versions and settings."""
    versions = (numba.__version__, llvmlite.__version__, np.__version__)
    settings = (f"{name}={getattr(config, name, None)}" for name in SETTINGS)
    return (platform.python_version(), *versions, *settings)
