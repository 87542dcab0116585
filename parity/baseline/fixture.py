"""What the fixture ``parity_baseline`` gives to a test (docs/pytest.md)."""

from __future__ import annotations

import hashlib
import shlex
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from parity import baseline
from parity.bits_equal import bits_difference, named_tensors
from parity.dump import TensorType
from parity.dumps.tensor_files import Tensor
from parity.errors import InputError
from parity.store import Store
from parity.store.store import LONGEST_NAME

_KEPT = LONGEST_NAME - 40  # bytes of a long test's name that stay readable


class ParityBaseline:
    """The accepted arrays of one test.

    ``folder``: the store. ``node``: id of the test. ``update``: accept, in place of comparing.
    """

    def __init__(self, folder: Path, node: str, *, update: bool) -> None:
        self._folder, self._node, self._update = folder, node, update
        self._pending: dict[str, dict[str, np.ndarray]] = {}
        self._names: set[str] = set()

    def check(self, arrays: Any, name: str | None = None) -> None:
        """Fail unless ``arrays`` have the names, dtypes, shapes and bytes that were accepted.

        ``arrays``: an array of any library, a mapping or a sequence of them, as for
        ``parity.testing.assert_bits_equal``. ``name``: of the baseline; by default the test's node
        id, and then once in a test. Two tests may check one name.

        Raises AssertionError where anything differs and where nothing was accepted yet; InputError
        for a store that was altered, naming the file. With ``--parity-update`` nothing is
        compared: the arrays are accepted at the end of the test, if it passes.
        """
        __tracebackhide__ = True
        chosen = default_name(self._node) if name is None else name
        if chosen in self._names:
            raise InputError(f"baseline {chosen!r} is checked twice in {self._node}", "name each")
        self._names.add(chosen)
        given = _storable(named_tensors("dut", arrays))
        if self._update:
            # A copy: the test goes on with its arrays.
            self._pending[chosen] = {tag: np.array(array) for tag, array in given.items()}
            return
        text = self._difference(chosen, given)
        if text:
            raise AssertionError(text)

    def accept(self) -> list[str]:
        """At the end of a test that passed: accept what was checked under ``--parity-update``.

        Returns what became of each name.

        Raises AssertionError for a test that checked nothing, InputError where the store was
        altered or cannot be written.
        """
        if not self._names:
            raise AssertionError(f"{self._node} passed, and parity_baseline checked nothing in it")
        return [self._accept(name, arrays) for name, arrays in self._pending.items()]

    def left(self) -> list[str]:
        """What was not accepted, because the test did not pass."""
        return [f"not accepted  {name}: the test did not pass" for name in self._pending]

    def _accept(self, name: str, arrays: dict[str, np.ndarray]) -> str:
        store, command = Store(self._folder), f"pytest --parity-update {shlex.quote(self._node)}"
        if name not in store.names(baseline.KIND):
            entry = baseline.save_arrays(store, name, arrays, command=command)
            return f"saved  {name}: {_counted(len(arrays))}, entry {entry.seq}"
        if not _against(store, name, arrays):
            return f"unchanged  {name}"
        entry, changed = baseline.promote_arrays(store, name, arrays, command=command)
        return f"changed  {name}: {'; '.join(changed)}, entry {entry.seq}"

    def _difference(self, name: str, arrays: dict[str, np.ndarray]) -> str:
        store = Store(self._folder)
        again = f"accept it with: pytest --parity-update {shlex.quote(self._node)}"
        if name not in store.names(baseline.KIND):
            return f"no baseline {name!r} in {self._folder}: nothing was compared\n{again}"
        text = _against(store, name, arrays)
        entry = store.latest(baseline.KIND, name) if text else None
        if entry is None:
            return ""
        where = f"ref is baseline {name!r}, entry {entry.seq} of {entry.created}"
        return f"{text}\n{where}, in {self._folder}\nif it is right, {again}"


def default_name(node: str) -> str:
    """The baseline of a test by its node id; the middle of a long one becomes a digest."""
    plain = node.lstrip(".- ")
    if len(quote(plain, safe="")) <= LONGEST_NAME:
        return plain
    digest = hashlib.sha256(node.encode()).hexdigest()[:16]
    tail = plain
    while len(quote(tail, safe="")) > _KEPT:
        tail = tail[1:]
    return f"{digest} {tail}"


def _against(store: Store, name: str, arrays: dict[str, np.ndarray]) -> str:
    """How the arrays differ from those accepted; empty where they do not."""
    stored = baseline.load(store, name)
    types = stored.record["tensors"]
    refs = {
        tag: Tensor(array, TensorType.parse(types[tag]).dtype)
        for tag, array in stored.tensors.items()
    }
    return bits_difference(refs, arrays)


def _storable(tensors: dict[str, Tensor]) -> dict[str, np.ndarray]:
    """Arrays that a file can hold; bf16 has its dtype where ml_dtypes is loaded, else its bits."""
    special = sys.modules.get("ml_dtypes")
    return {
        tag: array.view(special.bfloat16) if dtype == "bf16" and special is not None else array
        for tag, (array, dtype) in tensors.items()
    }


def _counted(number: int) -> str:
    return f"{number} array{'' if number == 1 else 's'}"
