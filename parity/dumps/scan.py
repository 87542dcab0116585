"""Read whole blocks of dump lines at once, with NumPy: no Python object a line.

Every step works on one value a line. A text of up to 64 bytes is held as words of 8 bytes, first
character lowest, so that eight characters are checked or converted by one operation on a word:
``x - 0x01..01 & ~x & 0x80..80`` marks the bytes of x that are zero (its lowest mark is exact),
and adding 0x06 to a byte of 0x30..0x39 leaves its high half at 3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from parity.dump import TensorType
from parity.dumps.table import Kinds, Places
from parity.errors import InputError
from parity.keys import Key

PAD = 128  # bytes behind a block that may be read, whatever they hold
_WORDS = 8  # a longer text is left to the reader of single lines
_SLOT_BITS = 16
_INVALID = -1  # of a text that is no place or no type

_u64 = np.uint64
_ONES, _HIGHS = _u64(0x0101010101010101), _u64(0x8080808080808080)
_LOW4, _HIGH4 = _u64(0x0F0F0F0F0F0F0F0F), _u64(0xF0F0F0F0F0F0F0F0)
_ZEROS, _SIXES = _u64(0x3030303030303030), _u64(0x0606060606060606)  # "00000000"
_UNDERSCORES = _u64(0x5F5F5F5F5F5F5F5F)
_KEEP = np.array([(1 << 8 * count) - 1 for count in range(9)], np.uint64)  # the first bytes
# Odd numbers without a pattern (golden ratio, then multiples of it): a hash of the words.
_FACTORS = [_u64(0x9E3779B97F4A7C15 * odd % (1 << 64)) for odd in range(1, 2 * _WORDS + 2, 2)]


class Block(NamedTuple):
    """The lines of a block. ``ok``: the line is a record without ``nonfinite``, in plain form,
    and its columns hold it; any other line must be read by itself, from ``start`` to ``end``."""

    start: np.ndarray
    end: np.ndarray
    ok: np.ndarray
    pos: np.ndarray
    place: np.ndarray
    digest: np.ndarray
    kind: np.ndarray


class Scanner:
    """Reads the blocks of one file; keeps the places and types it has met."""

    def __init__(self, places: Places, kinds: Kinds) -> None:
        self._places = _Texts(lambda text: places.id_of(Key.parse(f"t0_{text}")))
        self._kinds = _Texts(lambda text: kinds.id_of(TensorType.parse(text) if text else None))

    def scan(self, data: np.ndarray, size: int) -> Block:
        """Read ``size`` bytes (at least 1) of ``data`` uint8[size + PAD]; they end with LF."""
        start, end, first, second, ok = _split(data, size)
        digest = _hexadecimal(_words(data, first + 1, 2), ok)
        digits, pos = _position(_words(data, start + 1, 1)[:, 0], ok)
        begin = start + 2 + digits
        place = self._places.ids(data, begin, first - begin, ok)
        begin = np.minimum(second + 1, end)
        kind = self._kinds.ids(data, begin, end - begin, ok)
        ok &= (place != _INVALID) & (kind != _INVALID)
        return Block(start, end, ok, pos, place, digest, kind)


def _split(data: np.ndarray, size: int) -> tuple[np.ndarray, ...]:
    """(start, end, first blank, second blank or end, ok) of each line.

    ok: a ``t`` in front, and 16 characters between the two, which are blanks.
    """
    gaps = np.flatnonzero(data[:size] <= ord(" "))
    at = np.flatnonzero(data[gaps] == ord("\n"))
    end = gaps[at]
    start = np.concatenate([[0], end[:-1] + 1])
    count = np.diff(at, prepend=-1) - 1  # blanks of the line
    first, second = gaps[at - count], gaps[np.minimum(at - count + 1, at)]
    ok = (count >= 1) & (second == first + 17) & (data[start] == ord("t"))
    ok &= (data[first] == ord(" ")) & ((count == 1) | (data[second] == ord(" ")))
    return start, end, first, second, ok


def _words(data: np.ndarray, at: np.ndarray, count: int) -> np.ndarray:
    """uint64[n, count]: the 8 * count bytes from each of ``at`` on."""
    size = 8 * count
    # One item of that many bytes at each byte of the block: a gather copies each at once.
    items = np.ndarray((len(data) - size + 1,), f"V{size}", data, 0, (1,))
    words: np.ndarray = items[at].view("<u8").reshape(-1, count)
    return words


def _hexadecimal(words: np.ndarray, ok: np.ndarray) -> np.ndarray:
    """The number that 16 characters of each line write; clears ``ok`` where they write none."""
    halves = []
    for word in (words[:, 0], words[:, 1]):
        letters = (word >> _u64(6)) & _ONES  # 1 in the byte of a letter
        nibbles = (word & _LOW4) + letters * _u64(9)
        over9 = ((nibbles + _u64(0x7676767676767676)) & _HIGHS) >> _u64(7)
        # Written again, as a digit or as a to f, they must give the same characters.
        ok &= (nibbles + _ZEROS + letters * _u64(0x27) == word) & (over9 == letters)
        ok &= nibbles & _HIGH4 == 0  # g and what follows it
        value = (nibbles << _u64(4) | nibbles >> _u64(8)) & _u64(0x00FF00FF00FF00FF)
        value = (value << _u64(8) | value >> _u64(16)) & _u64(0x0000FFFF0000FFFF)
        halves.append((value << _u64(16) | value >> _u64(32)) & _u64(0xFFFFFFFF))
    return halves[0] << _u64(32) | halves[1]


def _position(word: np.ndarray, ok: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(how many digits, their value int32) of the 1 to 7 digits before the first ``_``.

    Clears ``ok`` where a line has none, more, something else or a leading zero.
    """
    mixed = word ^ _UNDERSCORES
    marks = (mixed - _ONES) & ~mixed & _HIGHS
    lowest = marks & (~marks + _u64(1))
    # 0x80 << 8 i, less 1, has 8 i + 7 bits; without a mark all 64 are set.
    digits = np.bitwise_count(lowest - _u64(1)).astype(np.uint64) >> _u64(3)
    bits = digits << _u64(3)
    text = word << (_u64(64) - bits) | _ZEROS >> bits  # right-aligned, "0" in front
    ok &= (marks != 0) & (digits > 0) & ((digits == 1) | (word & _u64(0xFF) != ord("0")))
    ok &= (text & _HIGH4 == _ZEROS) & ((text + _SIXES) & _HIGH4 == _ZEROS)
    # Neighbouring digits, then pairs, then fours: a * 10 + b, a * 100 + b, a * 10000 + b.
    value = (text & _LOW4) * _u64(10 << 8 | 1) >> _u64(8)
    value = (value & _u64(0x00FF00FF00FF00FF)) * _u64(100 << 16 | 1) >> _u64(16)
    value = (value & _u64(0x0000FFFF0000FFFF)) * _u64(10000 << 32 | 1) >> _u64(32)
    return digits.astype(np.int64), value.astype(np.int32)


class _Texts:
    """Numbers of the texts of one column: each text is parsed once.

    A text is found by a hash of its words and taken only if the words are equal; what is not
    found that way (new, or two texts of one hash) is looked up as bytes.
    """

    def __init__(self, parse: Callable[[str], int]) -> None:
        self._parse = parse
        self._ids: dict[bytes, int] = {}
        self._slots = np.zeros(1 << _SLOT_BITS, np.int32)
        self._known = np.zeros((16, _WORDS), np.uint64)  # words of text 1, 2, ...
        self._values = np.full(16, _INVALID, np.int32)
        self._lengths = np.full(16, -1)  # of none, too: a slot nobody filled holds 0

    def ids(
        self, data: np.ndarray, begin: np.ndarray, length: np.ndarray, ok: np.ndarray
    ) -> np.ndarray:
        """int32[n]: what ``parse`` made of the text of each line that is ``ok``, else -1.

        Clears ``ok`` of lines whose text is too long. A text that ``parse`` refuses gives -1.
        """
        ok &= (length >= 0) & (length <= 8 * _WORDS)
        length = np.where(ok, length, 0)
        count = max(1, -(-int(length.max()) // 8))
        found = _words(data, np.where(ok, begin, 0), count)
        columns = [
            found[:, word] & _KEEP[np.clip(length - 8 * word, 0, 8)] for word in range(count)
        ]
        mixed = columns[0] * _FACTORS[0]
        for column, factor in zip(columns[1:], _FACTORS[1:], strict=False):
            mixed ^= column * factor
        slots = (mixed * _FACTORS[-1]) >> _u64(64 - _SLOT_BITS)
        texts = self._slots[slots]
        known = self._lengths[texts] == length
        for word, column in enumerate(columns):
            known &= self._known[texts, word] == column
        strange = np.flatnonzero(~known & ok)
        if len(strange):
            texts[strange] = self._learn([column[strange] for column in columns], slots[strange])
        return np.where(ok, self._values[texts], _INVALID)

    def _learn(self, columns: list[np.ndarray], slots: np.ndarray) -> np.ndarray:
        """Numbers of texts that the hash did not find; new ones are parsed."""
        words = np.zeros((len(slots), _WORDS), "<u8")
        for word, column in enumerate(columns):
            words[:, word] = column
        items = words.view(f"V{8 * _WORDS}")[:, 0]
        different, first, which = np.unique(items, return_index=True, return_inverse=True)
        numbers = np.empty(len(different), np.int32)
        # In the order of the file, so that the numbers rise where the lines are in order.
        for at in np.argsort(first).tolist():
            row = int(first[at])
            numbers[at] = self._number(words[row], int(slots[row]))
        return numbers[which]

    def _number(self, words: np.ndarray, slot: int) -> int:
        text = words.tobytes().rstrip(b"\0")
        number = self._ids.get(text)
        if number is None:
            number = self._ids[text] = len(self._ids) + 1
            if number == len(self._values):
                self._known = np.concatenate([self._known, np.zeros_like(self._known)])
                self._values = np.concatenate([self._values, np.full_like(self._values, _INVALID)])
                self._lengths = np.concatenate([self._lengths, np.full_like(self._lengths, -1)])
            self._known[number], self._lengths[number] = words, len(text)
            self._values[number] = self._parsed(text)
        self._slots[slot] = number
        return number

    def _parsed(self, text: bytes) -> int:
        try:
            return self._parse(text.decode("ascii"))
        except (InputError, UnicodeDecodeError):
            return _INVALID
