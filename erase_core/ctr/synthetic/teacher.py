"""The planted teacher of the synthetic sets: click probabilities from fields' values.

The logit is a sum of components of pure order: because fields are drawn independently and
every latent is centred, a product of k latents is orthogonal to everything of lower order. So
the share of each order in the logit's variance is a design constant: a linear model explains
the main effects at best, and each further order asks for a deeper model. Interactions are
nested (ab, abc, abcd), which is what lets gradient descent find the higher orders.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import sqrt

import torch
from torch import Tensor

from erase_core.ctr.synthetic.hashing import value_hashes
from erase_core.ctr.synthetic.population import POPULATIONS

_CALIBRATION_ROWS = 1 << 16
_CALIBRATION_SEED = (1 << 62) + 1
_SALTS = {"criteo": 11, "avazu": 23}
_LATENTS = 3
_HALF_RANGE = float(0x7FFF)


@dataclass(frozen=True)
class Design:
    """Constants of a teacher.

    Attributes:
        click_rate: Mean click probability.
        deviations: Standard deviation of the logit's components of order 1, 2, 3 and 4.
        head: Rank at which a value's effect has fallen to half: rare values matter little, so that
            a sample of moderate size determines most of the teacher.
        chains: Fields that interact: each chain (a, b, c, d) contributes ab, abc and abcd. A field
            may be in as many chains as there are latents (3), each with a latent of its own.
    """

    click_rate: float
    deviations: tuple[float, float, float, float]
    head: float
    chains: tuple[tuple[str, str, str, str], ...]


DESIGNS = {
    "criteo": Design(
        click_rate=0.256,
        deviations=(1.3, 0.5, 0.4, 0.4),
        head=100.0,
        chains=(
            ("C2", "C6", "C14", "C17"),
            ("C23", "C20", "C5", "C25"),
            ("C1", "C8", "C17", "C6"),
            ("C14", "C23", "C2", "I2"),
            ("I5", "C9", "C22", "C14"),
            ("I6", "C17", "C20", "C1"),
        ),
    ),
    "avazu": Design(
        click_rate=0.170,
        deviations=(1.3, 0.5, 0.4, 0.4),
        head=100.0,
        chains=(
            ("site_category", "C18", "banner_pos", "C19"),
            ("C21", "site_id", "app_category", "C18"),
            ("site_domain", "C17", "C18", "app_domain"),
            ("C19", "app_id", "site_category", "C21"),
            ("C14", "banner_pos", "C20", "site_category"),
            ("device_model", "site_id", "C21", "app_domain"),
        ),
    ),
}


class Teacher:
    """Click probabilities of one synthetic population.

    Calibrated on a fixed sample of 65,536 rows that no seed of the public generator reaches:
    latents' means and deviations, and the bias that gives the design's click rate (bisection in
    float64).
    """

    def __init__(self, name: str):
        population, self.design = POPULATIONS[name], DESIGNS[name]
        numeric = [field.name for field in population.numeric]
        categorical = [field.name for field in population.categorical]
        if population.hours:
            categorical.append("hour")
        self.salt = _SALTS[name]
        self.main = len(numeric) + len(categorical)
        # Slots are latents: first the main effect of every field, then those of the chains.
        used = dict.fromkeys(numeric + categorical, 0)
        slots = [(field, 0) for field in used]
        for field in (field for chain in self.design.chains for field in chain):
            used[field] += 1
            if used[field] > _LATENTS:
                raise ValueError(f"field {field!r} is in more than {_LATENTS} chains")
            slots.append((field, used[field]))
        self.numeric_slots = [
            (at, numeric.index(field)) for at, (field, _) in enumerate(slots) if field in numeric
        ]
        self.categorical_slots = [
            (at, categorical.index(field), latent)
            for at, (field, latent) in enumerate(slots)
            if field not in numeric
        ]
        self._slots = len(slots)
        self.bias = 0.0
        self.click_rate = self.design.click_rate
        self._calibrate(name)

    def _calibrate(self, name: str) -> None:
        draw = POPULATIONS[name].draw(torch.arange(_CALIBRATION_ROWS), _CALIBRATION_SEED)
        values = teacher_values(draw.values, draw.hour)
        logs = _log_ranks(draw.numeric)
        self.numeric_mean, self.numeric_deviation = _moments(logs)
        latents = self._latents(values, draw.numeric)
        self.mean, deviation = _moments(latents)
        # Main effects keep their own sizes, chains' latents are made to unit variance.
        first = self.design.deviations[0]
        self.scale = 1 / deviation
        self.scale[: self.main] = first / sqrt(float((deviation[: self.main] ** 2).sum()))
        logit = self.logit(values, draw.numeric)
        low, high = -30.0, 30.0
        for _ in range(80):
            middle = (low + high) / 2
            if float(torch.sigmoid(logit + middle).mean()) < self.click_rate:
                low = middle
            else:
                high = middle
        self.bias = (low + high) / 2

    def standardized(self, numeric: Tensor) -> Tensor:
        """Return float64 `[B, numeric]` standardised log(1 + rank), 0 where missing."""
        mean, deviation = (
            t.to(numeric.device) for t in (self.numeric_mean, self.numeric_deviation)
        )
        return torch.where(numeric < 0, 0.0, (_log_ranks(numeric) - mean) / deviation)

    def probability(self, values: Tensor, numeric: Tensor) -> Tensor:
        """Return float64 `[B]` click probabilities of ranks (see `teacher_values`)."""
        return torch.sigmoid(self.logit(values, numeric) + self.bias)

    def logit(self, values: Tensor, numeric: Tensor) -> Tensor:
        """Return the float64 `[B]` logit without the bias."""
        device = values.device
        latents = (self._latents(values, numeric) - self.mean.to(device)) * self.scale.to(device)
        chains = latents[:, self.main :].unflatten(1, (-1, 4)).cumprod(dim=2)
        orders = torch.tensor((0.0, *self.design.deviations[1:]), device=device).double()
        return latents[:, : self.main].sum(1) + (chains.sum(1) / sqrt(chains.shape[1])) @ orders

    def _latents(self, values: Tensor, numeric: Tensor) -> Tensor:
        """Return float64 `[B, slots]` latents before centring."""
        device = values.device
        latents = torch.empty(len(values), self._slots, dtype=torch.float64, device=device)
        at, column = zip(*self.numeric_slots, strict=True) if self.numeric_slots else ((), ())
        if at:
            latents[:, list(at)] = self.standardized(numeric)[:, list(column)]
        at, column, latent = zip(*self.categorical_slots, strict=True)
        bits = value_hashes(values, self.salt)[:, list(column)]
        bits = (bits >> (16 * torch.tensor(latent, device=device))) & 0xFFFF
        damping = 1 / (1 + values[:, list(column)].clamp(min=0).double() / self.design.head)
        latents[:, list(at)] = (bits.double() / _HALF_RANGE - 1) * damping
        return latents


@lru_cache(maxsize=len(DESIGNS))
def planted_teacher(name: str) -> Teacher:
    """Return the teacher of `"criteo"` or `"avazu"`, calibrated once a process."""
    return Teacher(name)


def teacher_values(values: Tensor, hour: Tensor | None) -> Tensor:
    """Return int64 ranks with the hour of day, where there is a time, as the last column."""
    return values if hour is None else torch.cat([values, (hour % 24)[:, None]], dim=1)


def _log_ranks(numeric: Tensor) -> Tensor:
    return torch.log1p(numeric.clamp(min=0).double())


def _moments(columns: Tensor) -> tuple[Tensor, Tensor]:
    """Return means and deviations of `[N, columns]`; unlike `std`, also of no columns."""
    mean = columns.mean(0)
    return mean, (columns - mean).square().mean(0).sqrt()
