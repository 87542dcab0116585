"""Prefix-chained digests of a dump: trees, their files, the search between two (docs/digest.md)."""
