"""Messy input drawn at random, against a line-by-line classifier in plain Python."""

import re
import tempfile
from pathlib import Path

import data_prep_reference as reference
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep import RowError
from data_prep import vocabulary as vocabularies
from data_prep.layouts import CRITEO
from data_prep.splits import SplitPolicy
from data_prep.spool import BadRows, Spool, read_source

TINY = reference.criteo_text(8).splitlines()
MESS = st.sampled_from(
    ["", "-", "+1", "1.0", "1.", "1e3", "0x1f", "nan", "é", "٣", '"', "#", "deadbeef", "DEADBEEF"]
    + ["-2", "2147483648", "0", "1", "00", "ffffffffff", "\r", " ", "\x85", "\ufeff", "true"]
)


@st.composite
def messy_lines(draw):
    """Lines of which some have wrong values, too many or few columns, or a carriage return."""
    lines = []
    for number in range(draw(st.integers(2, 12))):
        fields = TINY[draw(st.integers(0, len(TINY) - 1))].split("\t")
        if number:  # the first line decides the form and has tests of its own
            for _ in range(draw(st.integers(0, 2))):
                fields[draw(st.integers(0, 39))] = draw(MESS)
            fields = draw(st.sampled_from([fields] * 6 + [fields[:-1], [*fields, ""], [""]]))
        lines.append("\t".join(fields))
    return lines


def fault(line: str) -> str | None:
    """What is wrong with a line, by the rules as a person would state them."""
    if "\r" in line:
        return "line-end"
    fields = line.split("\t")
    if len(fields) != reference.CRITEO_COLUMNS:
        return "column-count"
    if fields[0] not in ("0", "1"):
        return "label"
    if not all(re.fullmatch(r"([+-]?[0-9]+(\.0)?)?", field) for field in fields[1:14]):
        return "number"
    if not all(re.fullmatch(r"[0-9a-fA-F]{0,8}", field) for field in fields[14:]):
        return "category"
    return None


def read(text: bytes, *, skip: bool, chunk_bytes: int) -> tuple[pl.DataFrame, BadRows]:
    with tempfile.TemporaryDirectory() as name:
        source, directory = Path(name) / "train.txt", Path(name) / "spool"
        source.write_bytes(text)
        directory.mkdir()
        spool = Spool(directory)
        _, bad = read_source(
            source, CRITEO, spool, decimals=False, skip=skip, chunk_bytes=chunk_bytes
        )
        columns = [spool.column(pl.col(column)).alias(column) for column in CRITEO.header]
    return pl.DataFrame(columns), bad


@settings(max_examples=60)
@given(messy_lines(), st.sampled_from([1, 500, 1 << 20]), st.booleans())
def test_exactly_the_bad_lines_are_found_with_their_numbers(lines, chunk_bytes, ended):
    text = ("\n".join(lines) + "\n" * ended).encode()
    if not ended and lines[-1] == "":
        lines = lines[:-1]  # an end of line, not a line
    faults = [fault(line) for line in lines]
    frame, bad = read(text, skip=True, chunk_bytes=chunk_bytes)
    expected = [reason for reason in faults if reason]
    assert bad.counts == {reason: expected.count(reason) for reason in set(expected)}
    assert bad.first_line == {reason: faults.index(reason) + 1 for reason in set(expected)}
    good = [line.split("\t") for line, reason in zip(lines, faults, strict=True) if not reason]
    assert frame["label"].to_list() == [int(fields[0]) for fields in good]
    integers = [int(f[13].removesuffix(".0")) if f[13] else None for f in good]
    assert frame["I13"].to_list() == integers
    eight = [int(f[39], 16) if f[39] else None for f in good if len(f[39]) in (0, 8)]
    got = [key for key in frame["C26"].to_list() if key is None or key < 2**32]
    assert got == eight
    if expected:
        with pytest.raises(RowError) as caught:
            read(text, skip=False, chunk_bytes=chunk_bytes)
        first = next(i for i, reason in enumerate(faults) if reason)
        assert (caught.value.line, caught.value.reason) == (first + 1, faults[first])


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.none() | st.integers(-3, 6), st.booleans()), min_size=1, max_size=60),
    st.integers(1, 4),
)
def test_ids_equal_the_reference_for_any_column(rows, min_count):
    keys = pl.Series([key for key, _ in rows], dtype=pl.Int64)
    training = pl.Series([chosen for _, chosen in rows], dtype=pl.Boolean)
    chosen = [i for i, (_, train) in enumerate(rows) if train]
    columns = [[key] for key, _ in rows]
    expected = reference.vocabularies(columns, chosen, min_count)
    vocabulary = vocabularies.fit(keys, training, min_count)
    assert dict(vocabulary.select("value", "id").iter_rows()) == expected[0]
    got = vocabularies.encode(keys, vocabulary)
    assert got.dtype == np.int32
    every = range(len(rows))
    assert [[i] for i in got.tolist()] == reference.encoded(columns, expected, list(every))


@given(st.integers(10, 300), st.floats(0.06, 0.4), st.floats(0.06, 0.4), st.integers(0, 5))
def test_both_policies_divide_all_rows_into_parts_of_equal_size(count, test, valid, seed):
    hours = np.arange(count)[::-1] // 7
    parts = {
        name: SplitPolicy(name, test, valid, seed).rows(count, hours, Path("train.txt"))
        for name in ("time", "random")
    }
    expected = reference.time_split(sorted(range(count), key=lambda i: hours[i]), test, valid)
    assert {name: rows.tolist() for name, rows in parts["time"].items()} == expected
    for name, rows in parts["random"].items():
        assert rows.size == len(expected[name])
    together = np.sort(np.concatenate(list(parts["random"].values())))
    assert together.tolist() == list(range(count))


@given(st.integers(3, 2**40))
def test_log_bin_equals_the_definition(value):
    from data_prep.recipes import log_bin

    frame = pl.DataFrame({"x": [value, None, 2, 1, 0, -2]}, schema={"x": pl.Int64})
    assert frame.select(log_bin(pl.col("x")))["x"].to_list() == [
        reference.log_bin(value),
        None,
        2,
        1,
        0,
        -2,
    ]
