"""One of several writers at once (tests/core/test_store_killed.py): saves, and counts upwards."""

from __future__ import annotations

import sys
from pathlib import Path

from parity.errors import InputError
from parity.store import Store
from tests.core.store_samples import accept

KIND, SHARED = "baseline", "shared"


def count_up(store: Store) -> None:
    """One more entry of the shared name, after whatever stands there by then."""
    while True:
        last = store.latest(KIND, SHARED)
        record = {"count": last.record["count"] + 1}
        try:
            store.append(KIND, SHARED, record, action="promote", expected=last.digest)
        except InputError as error:
            if "meanwhile" not in error.message:
                raise
            continue
        return


def main(folder: Path, writer: str, rounds: int) -> None:
    store = Store(folder)
    try:
        store.append(KIND, SHARED, {"count": 0}, action="save", expected=None)
    except InputError as error:
        if "exists already" not in error.message:
            raise
    for number in range(rounds):
        accept(store, f"{writer}-{number}", store.put(f"{writer} {number}".encode()))
        count_up(store)
        store.verify()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
