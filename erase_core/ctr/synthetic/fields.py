"""Shapes of the fields of the Criteo and Avazu sets, for the synthetic generator.

Cardinalities are those of the full public sets. `scale` and `tail` describe a rank's survival
function, S(r) = (1 + r / scale) ** (-1 / tail): a small tail exponent (1) concentrates mass on
few values, a large one (8) leaves most of it to rare values. They were fitted by least squares
to the shares of the commonest 1..300 values in uniform samples of the real rows; `missing` is
the share of missing values there. `tail` is a power of two, so that the quantile function needs
nothing but multiplication and division and gives the same integers on every device.
"""

from dataclasses import dataclass
from typing import Literal

TAILS = (1, 2, 4, 8)
"""Admissible tail exponents."""


@dataclass(frozen=True)
class Field:
    """One column: name, number of values, and the distribution of its ranks.

    For a categorical field the ranks are its values, commonest first, and `cardinality` counts
    them; `first` tells how they are written in a raw file: None for eight hexadecimal digits, a
    number for consecutive integers from there on. For a numeric field rank plus `first` is the
    value itself and `cardinality - 1` the largest rank.
    """

    name: str
    cardinality: int
    scale: float
    tail: Literal[1, 2, 4, 8]
    missing: float = 0.0
    first: int | None = None


CRITEO_NUMERIC = (
    Field("I1", 426, 1.0, 1, 0.451, 0),
    Field("I2", 10_256, 1.3, 2, 0.0, -1),
    Field("I3", 65_536, 4.0, 1, 0.213, 0),
    Field("I4", 350, 3.1, 1, 0.214, 0),
    Field("I5", 2_071_072, 320.0, 2, 0.026, 0),
    Field("I6", 111_106, 25.0, 1, 0.223, 0),
    Field("I7", 6_499, 3.5, 1, 0.043, 0),
    Field("I8", 1_690, 3.1, 1, 0.001, 0),
    Field("I9", 9_466, 27.0, 1, 0.043, 0),
    Field("I10", 8, 0.13, 1, 0.451, 0),
    Field("I11", 124, 1.0, 1, 0.043, 0),
    Field("I12", 194, 0.35, 1, 0.765, 0),
    Field("I13", 1_575, 2.1, 1, 0.214, 0),
)

CRITEO_CATEGORICAL = (
    Field("C1", 1_460, 0.99, 1),
    Field("C2", 583, 6.5, 2),
    Field("C3", 10_131_227, 14.0, 8, 0.034),
    Field("C4", 2_202_608, 4.7, 8, 0.034),
    Field("C5", 305, 0.46, 1),
    Field("C6", 24, 0.94, 1, 0.122),
    Field("C7", 12_517, 38.0, 8),
    Field("C8", 633, 0.64, 1),
    Field("C9", 3, 0.18, 1),
    Field("C10", 93_145, 2.1, 8),
    Field("C11", 5_683, 18.0, 8),
    Field("C12", 8_351_593, 11.0, 8, 0.034),
    Field("C13", 3_194, 15.0, 8),
    Field("C14", 27, 1.3, 1),
    Field("C15", 14_992, 59.0, 2),
    Field("C16", 5_461_306, 8.1, 8, 0.034),
    Field("C17", 10, 0.35, 8),
    Field("C18", 5_652, 21.0, 2),
    Field("C19", 2_173, 0.059, 4, 0.442),
    Field("C20", 4, 3.5, 8, 0.442),
    Field("C21", 7_046_547, 9.0, 8, 0.034),
    Field("C22", 18, 0.64, 1, 0.761),
    Field("C23", 15, 1.4, 1),
    Field("C24", 286_181, 4.2, 4, 0.034),
    Field("C25", 105, 2.1, 1, 0.442),
    Field("C26", 142_572, 2.4, 8, 0.442),
)

AVAZU_CATEGORICAL = (
    Field("C1", 7, 0.097, 1, first=1001),
    Field("banner_pos", 7, 0.43, 1, first=0),
    Field("site_id", 4_737, 0.75, 2),
    Field("site_domain", 7_745, 0.64, 2),
    Field("site_category", 26, 1.0, 1),
    Field("app_id", 8_552, 0.21, 2),
    Field("app_domain", 559, 0.48, 1),
    Field("app_category", 36, 0.48, 1),
    Field("device_id", 2_686_408, 0.074, 2),
    Field("device_ip", 6_729_486, 260.0, 8),
    Field("device_model", 8_251, 15.0, 2),
    Field("device_type", 5, 0.1, 1, first=0),
    Field("device_conn_type", 4, 0.22, 1, first=0),
    Field("C14", 2_626, 50.0, 1, first=20_000),
    Field("C15", 8, 0.074, 1, first=320),
    Field("C16", 9, 0.062, 1, first=50),
    Field("C17", 435, 8.6, 2, first=1_700),
    Field("C18", 4, 2.8, 1, first=0),
    Field("C19", 68, 2.4, 1, first=35),
    Field("C20", 172, 0.18, 4, 0.47, first=100_000),
    Field("C21", 60, 3.9, 1, first=20),
)

AVAZU_HOURS = 240
"""Hours covered by Avazu's training file: ten days from 2014-10-21 00:00."""
