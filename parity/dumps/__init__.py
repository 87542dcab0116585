"""Dumps and tensors in files: reading, writing, recording (docs/dump-format.md)."""
