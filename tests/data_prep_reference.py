"""A slow, plain-Python account of what data_prep has to produce, and messy raw rows to feed it.

Shares no code with the package: loops over rows, dictionaries and the standard library alone.
"""

import datetime
import math
import random
import statistics
from collections import Counter

CRITEO_COLUMNS = 40
AVAZU_HEADER = (
    "id,click,hour,C1,banner_pos,site_id,site_domain,site_category,app_id,app_domain,"
    "app_category,device_id,device_ip,device_model,device_type,device_conn_type,"
    "C14,C15,C16,C17,C18,C19,C20,C21"
)


def criteo_text(rows: int, seed: int = 0) -> str:
    """Kaggle-like rows: skewed values, many missing, negative integers, values seen once."""
    draw = random.Random(seed)
    lines = []
    for _ in range(rows):
        fields = [str(int(draw.random() < 0.3))]
        for _ in range(13):
            magnitude = draw.choice([3, 3, 10, 1000, 5_000_000])
            fields.append("" if draw.random() < 0.2 else str(draw.randrange(-2, magnitude)))
        for column in range(26):
            rank = int(draw.paretovariate(0.7 + column / 20))
            fields.append("" if draw.random() < 0.1 else f"{rank * 2654435761 % 2**32:08x}")
        lines.append("\t".join(fields))
    return "\n".join(lines) + "\n"


def avazu_text(rows: int, seed: int = 0) -> str:
    draw = random.Random(seed)
    lines = [AVAZU_HEADER]
    for number in range(rows):
        hexes = [f"{int(draw.paretovariate(0.9)) * 40503 % 2**32:08x}" for _ in range(9)]
        integers = [str(draw.randrange(-1, 6)) for _ in range(12)]
        hour = f"1410{draw.randrange(21, 31)}{draw.randrange(24):02d}"
        label = str(int(draw.random() < 0.2))
        fields = [str(10**18 + number), label, hour, *integers[:2], *hexes, *integers[2:]]
        lines.append(",".join(fields))
    return "\n".join(lines) + "\n"


def time_split(order: list[int], test: float, valid: float) -> dict[str, list[int]]:
    tests, valids = round(len(order) * test), round(len(order) * valid)
    trains = len(order) - tests - valids
    return {
        "train": order[:trains],
        "valid": order[trains : trains + valids],
        "test": order[trains + valids :],
    }


def log_bin(value: int) -> int:
    return math.floor(math.log(value) ** 2) if value > 2 else value


def criteo_keys(text: str, *, log_bins: bool) -> tuple[list[int], list[list], list[list]]:
    """Labels, numbers and keys (None = missing) of each row."""
    labels, numbers, keys = [], [], []
    for line in text.splitlines():
        fields = line.split("\t")
        integers = [int(field) if field else None for field in fields[1:14]]
        row = [int(field, 16) if field else None for field in fields[14:]]
        if log_bins:
            row = [None if x is None else log_bin(x) for x in integers] + row
        labels.append(int(fields[0]))
        numbers.append([] if log_bins else integers)
        keys.append(row)
    return labels, numbers, keys


def avazu_keys(text: str) -> tuple[list[int], list[str], list[list]]:
    """Labels, hours and keys of each row."""
    labels, hours, keys = [], [], []
    names = AVAZU_HEADER.split(",")
    for line in text.splitlines()[1:]:
        row = dict(zip(names, line.split(","), strict=True))
        moment = datetime.datetime.strptime(row["hour"], "%y%m%d%H")
        derived = [moment.hour, moment.isoweekday(), int(moment.isoweekday() in (6, 7))]
        for name in names[3:]:
            hexadecimal = name in names[5:14]
            value = row[name]
            derived.append(int(value, 16 if hexadecimal else 10) if value else None)
        labels.append(int(row["click"]))
        hours.append(row["hour"])
        keys.append(derived)
    return labels, hours, keys


def vocabularies(keys: list[list], training: list[int], min_count: int) -> list[dict]:
    """For each field the ids of its values."""
    found = []
    for field in range(len(keys[0])):
        counts = Counter(keys[row][field] for row in training if keys[row][field] is not None)
        kept = sorted((-count, value) for value, count in counts.items() if count >= min_count)
        found.append({value: number for number, (_, value) in enumerate(kept, start=2)})
    return found


def encoded(keys: list[list], vocabulary: list[dict], rows: list[int]) -> list[list[int]]:
    return [
        [
            0 if value is None else field.get(value, 1)
            for value, field in zip(keys[row], vocabulary, strict=True)
        ]
        for row in rows
    ]


def standardized(
    numbers: list[list], training: list[int], rows: list[int]
) -> tuple[list[list[float]], list[tuple[float, float]]]:
    """Dense inputs of some rows, and mean and deviation of each column."""

    def signed_log(x: int) -> float:
        return math.copysign(math.log1p(abs(x)), x)

    scales = []
    for column in range(len(numbers[0])):
        present = [
            signed_log(numbers[row][column]) for row in training if numbers[row][column] is not None
        ]
        scales.append((statistics.fmean(present), statistics.pstdev(present)))
    dense = [
        [
            0.0 if x is None else (signed_log(x) - mean) / deviation
            for x, (mean, deviation) in zip(numbers[row], scales, strict=True)
        ]
        for row in rows
    ]
    return dense, scales
