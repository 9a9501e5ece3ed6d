"""Keyed randomness: every random number is a pure function of what it is for.

A key is a 64-bit state. ``fold`` mixes further words into it (numbers, names, or
whole arrays of them) and ``uniform`` turns keys into numbers in [0, 1). There is
no generator object, so nothing depends on the order in which things are asked
for: not on lanes, backends, workers, or the order of a roster.

The mixing function is the finaliser of SplitMix64 (Steele, Lea & Flood 2014,
variant 13 of Stafford), applied once a word to ``state ^ (word + odd constant)``
with the state multiplied in between, so that ``fold(fold(k, a), b)`` and
``fold(fold(k, b), a)`` differ.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.uint64]
Word = int | str | npt.NDArray[np.generic]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLY_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLY_2 = np.uint64(0x94D049BB133111EB)
_MASK = (1 << 64) - 1


@lru_cache(maxsize=65536)
def name_word(name: str) -> int:
    """Maps a name to 64 bits (BLAKE2b), the same on every machine."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def _mix(state: Keys) -> Keys:
    state = (state ^ (state >> np.uint64(30))) * _MULTIPLY_1
    state = (state ^ (state >> np.uint64(27))) * _MULTIPLY_2
    return state ^ (state >> np.uint64(31))


def _as_words(word: Word) -> Keys:
    if isinstance(word, str):
        return np.asarray(name_word(word), dtype=np.uint64)
    if isinstance(word, np.ndarray):
        return word.astype(np.uint64)
    return np.asarray(word & _MASK, dtype=np.uint64)


def fold(key: Keys | int, *words: Word) -> Keys:
    """Mixes words into a key.

    Args:
        key: One key or an array of keys.
        *words: Integers, names, or integer arrays; they broadcast against the key.

    Returns:
        The new keys, uint64, of the broadcast shape.
    """
    state = _as_words(key)
    with np.errstate(over="ignore"):
        for word in words:
            state = _mix((state * _MULTIPLY_2 + _GOLDEN) ^ _mix(_as_words(word) + _GOLDEN))
    return np.asarray(state, dtype=np.uint64)


def uniform(key: Keys | int, *words: Word) -> npt.NDArray[np.float64]:
    """Draws numbers in [0, 1), one a key, after folding ``words`` in.

    Args:
        key: One key or an array of keys.
        *words: As for :func:`fold`.

    Returns:
        float64 of the broadcast shape, a multiple of 2**-53.
    """
    bits = fold(key, *words) >> np.uint64(11)
    return np.asarray(bits.astype(np.float64) * 2.0**-53, dtype=np.float64)


def permutation(key: Keys | int, n: int) -> npt.NDArray[np.int64]:
    """Gives a keyed permutation of ``range(n)`` (a sort by keyed uniforms)."""
    return np.argsort(uniform(key, np.arange(n)), kind="stable")
