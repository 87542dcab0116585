"""The append-only store of accepted results (docs/baselines.md): objects, entries and the head."""

from parity.store.entries import Entry, canonical
from parity.store.store import Store, check_name

DEFAULT_FOLDER = ".parity-store"  # in the working folder; no environment variable selects another

__all__ = ["DEFAULT_FOLDER", "Entry", "Store", "canonical", "check_name"]
