"""64-bit integer hashes on tensors, the source of all randomness in synthetic rows.

torch's int64 arithmetic wraps around on every device, which is all that splitmix64 needs
(Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
"""

import torch
from torch import Tensor

_MASK = (1 << 64) - 1


def _signed(value: int) -> int:
    """Return the int64 with the same 64 bits."""
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


GOLDEN = _signed(0x9E3779B97F4A7C15)
_MULTIPLIER_1 = _signed(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = _signed(0x94D049BB133111EB)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """Shift right logically; torch's own shift of an int64 copies the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def mix64(x: Tensor) -> Tensor:
    """Return splitmix64's finaliser of an int64 tensor: a bijection that spreads every bit."""
    x = (x ^ _shifted(x, 30)) * _MULTIPLIER_1
    x = (x ^ _shifted(x, 27)) * _MULTIPLIER_2
    return x ^ _shifted(x, 31)


def row_hashes(index: Tensor, seed: int, first: int, count: int) -> Tensor:
    """Return int64 `[B, count]` hashes of (seed, row number, slot), slots from `first` on.

    Within a slot the hash is one to one in the row number.
    """
    key = mix64(torch.tensor(seed, device=index.device) + GOLDEN)
    rows = mix64(index * GOLDEN + key)
    slots = torch.arange(first + 1, first + count + 1, device=index.device)
    return mix64(rows[:, None] + slots * GOLDEN)


def value_hashes(values: Tensor, salt: int) -> Tensor:
    """Return int64 `[B, fields]` hashes of (salt, field number, value)."""
    fields = torch.arange(values.shape[1], device=values.device)
    return mix64(values * GOLDEN + mix64(fields + salt))


def uniform(hashes: Tensor) -> Tensor:
    """Return float64 numbers in [0, 1) from the upper 53 bits of int64 hashes."""
    return _shifted(hashes, 11).double() * 2.0**-53
