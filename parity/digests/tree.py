"""The prefix-digest tree of a dump: one short chained digest a key, and which keys there are.

The digest at a key stands for all keys up to and with it (chain.py). The whole dump is the
root; the digest in the middle says in which half the first difference lies, and so on: two trees
find the first differing key by looking at about log2(n) digests of each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from parity.comparison.matching import dump_order, segment_names
from parity.digests.chain import Item, chain_lines, in_order, line_texts
from parity.digests.key_layout import Layout, Place
from parity.dump import PARTIAL, Dump
from parity.errors import InputError

BITS = (32, 64)  # of a digest in the tree; the root always has 64
SHORT, LONG = BITS


@dataclass(frozen=True)
class DigestTree:
    """``header``: of the dump. ``links``: for each key of ``layout``, in its order, the chained
    digest up to it, cut to ``bits``. ``whole``: the last one, uncut. ``stop``: place of the first
    key that is not finite, after which nothing is comparable (contract 1.10). ``source`` names it
    in messages.
    """

    header: dict[str, str]
    layout: Layout
    links: Sequence[int]
    whole: int
    bits: int = SHORT
    stop: int | None = None
    source: str = ""

    def __len__(self) -> int:
        return len(self.links)

    @property
    def head(self) -> Dump:
        """What the tree knows as a dump: the header, and no key."""
        return Dump(self.header, {}, self.source)


def fold(digest: int, bits: int) -> int:
    """64 bits cut to ``bits``: 32 are the exclusive or of both halves."""
    return digest if bits == LONG else (digest >> SHORT) ^ (digest & 0xFFFFFFFF)


def grow(dump: Dump, *, bits: int = SHORT, typed: bool = True) -> DigestTree:
    """The tree of ``dump``. ``typed``: whether dtype and shape are part of a key's line.

    Raises InputError for a partial dump and for a key given twice.
    """
    if PARTIAL in dump.header:
        raise InputError(
            f"{dump.source}: a partial dump: {dump.header[PARTIAL]}", "write the dump again"
        )
    items = in_order(dump, segment_names(dump, dump), dump_order(dump, dump))
    held = {(segment, entry.key) for segment, entry in items if typed and entry.type is not None}
    digests = chain_lines(line_texts(items, held))
    return DigestTree(
        header=dict(dump.header),
        layout=Layout.of(_places(items, typed)),
        links=[fold(digest, bits) for digest in digests],
        whole=digests[-1] if digests else 0,
        bits=bits,
        stop=next((at for at, (_, entry) in enumerate(items) if entry.nonfinite), None),
        source=dump.source,
    )


def _places(items: Iterable[Item], typed: bool) -> Iterable[Place]:
    for segment, entry in items:
        kind = str(entry.type) if typed and entry.type is not None else None
        yield Place(segment, entry.key, kind)
