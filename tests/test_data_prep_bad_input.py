"""Broken sources: each gives one typed error with file, line and remedy, and leaves nothing."""

import errno
import gzip
import io
import lzma
import os
import tarfile
import zipfile
from pathlib import Path

import data_prep_reference as reference
import numpy as np
import pytest
import zstandard

import data_prep
from data_prep import splits as splits_module
from data_prep import staging as staging_module
from data_prep import writer as writer_module
from data_prep.layouts import CRITEO
from data_prep.lines import LineReader
from data_prep.spool import Spool, read_source
from data_prep.staging import staged
from data_prep.streams import SourceFile

GOOD = reference.criteo_text(30).splitlines()
AVAZU = reference.avazu_text(30).splitlines()


def altered(column: int, value: str, line: int = 12) -> str:
    fields = [row.split("\t") for row in GOOD]
    fields[line - 1][column] = value
    return "\n".join(map("\t".join, fields)) + "\n"


def altered_avazu(name: str, value: str, line: int = 12) -> str:
    fields = [row.split(",") for row in AVAZU]
    fields[line - 1][fields[0].index(name)] = value
    return "\n".join(map(",".join, fields)) + "\n"


TEXT = "\n".join(GOOD) + "\n"
SHORT = "\n".join([*GOOD[:11], GOOD[11].rpartition("\t")[0], *GOOD[12:]])
LONG = "\n".join([*GOOD[:11], GOOD[11] + "\t", *GOOD[12:]])
BLANK = "\n".join([*GOOD[:11], "", *GOOD[11:]])
MIXED = "\n".join([*GOOD[:11], GOOD[11] + "\r", *GOOD[12:]])
MIXED_TO_LF = "\r\n".join([*GOOD[:11], GOOD[11] + "\n" + GOOD[12], *GOOD[13:]]) + "\r\n"
HEADER = ",".join(CRITEO.header)
COMMAS = TEXT.replace("\t", ",")
NOISE = np.random.default_rng(0).bytes(200_000)

# file name, bytes, error, line, part of the problem
ROWS = [
    ("short", SHORT, data_prep.ColumnCountError, 12, "39 columns instead of 40"),
    ("long", LONG, data_prep.ColumnCountError, 12, "41 columns instead of 40"),
    ("blank", BLANK, data_prep.ColumnCountError, 12, "an empty line instead of 40"),
    ("label 2", altered(0, "2"), data_prep.LabelError, 12, "label = '2'"),
    ("label -1", altered(0, "-1"), data_prep.LabelError, 12, "label = '-1'"),
    ("no label", altered(0, ""), data_prep.LabelError, 12, "label = ''"),
    ("first label", altered(0, "yes", 1), data_prep.LabelError, 1, "label = 'yes'"),
    ("word", altered(3, "many"), data_prep.NumberError, 12, "I3 = 'many' is not an integer"),
    ("decimal", altered(3, "1.5"), data_prep.NumberError, 12, "I3 = '1.5'"),
    ("space", altered(3, " 1"), data_prep.NumberError, 12, "I3 = ' 1'"),
    ("huge", altered(3, "9" * 30), data_prep.NumberError, 12, "I3 = '999"),
    ("non-hex", altered(14, "05db916g"), data_prep.CategoryError, 12, "C1 = '05db916g'"),
    ("sign", altered(39, "+5db9164"), data_prep.CategoryError, 12, "C26 = '+5db9164'"),
    ("nine digits", altered(39, "123456789"), data_prep.CategoryError, 12, "C26"),
    ("quoted", altered(20, '"05db9164"'), data_prep.CategoryError, 12, "C7"),
    ("quotes", altered(20, '"05db9164"'), data_prep.CategoryError, 12, "file without quotes, or"),
    ("quoted tab", altered(20, '"05\t64"'), data_prep.ColumnCountError, 12, "without quotes, or"),
    ("quoted end", altered(20, '"05\n64"'), data_prep.ColumnCountError, 12, "without quotes, or"),
    ("NUL", altered(20, "\x0005db916", 30), data_prep.CategoryError, 30, "C7"),
    ("mixed ends", MIXED, data_prep.LineEndError, 12, "mixed line ends"),
    ("mixed to LF", MIXED_TO_LF, data_prep.LineEndError, 12, "first line ends with CR LF"),
    ("return inside", altered(20, "05db\r164"), data_prep.LineEndError, 12, "mixed line ends"),
]
AVAZU_ROWS = [
    ("hour 24", altered_avazu("hour", "14102124"), data_prep.HourError, 12, "hour = '14102124'"),
    ("day 32", altered_avazu("hour", "14103201"), data_prep.HourError, 12, "hour = '14103201'"),
    ("no hour", altered_avazu("hour", ""), data_prep.HourError, 12, "hour = ''"),
    ("long hour", altered_avazu("hour", "2014102101"), data_prep.HourError, 12, "hour"),
    ("click 3", altered_avazu("click", "3"), data_prep.LabelError, 12, "click = '3'"),
    ("word", altered_avazu("C14", "x"), data_prep.NumberError, 12, "C14 = 'x'"),
    ("category", altered_avazu("site_id", "site"), data_prep.CategoryError, 12, "site_id"),
]
FILES = [
    ("empty", b"", data_prep.EmptySourceError, None, "empty"),
    ("empty.gz", gzip.compress(b""), data_prep.EmptySourceError, None, "no text"),
    ("header alone", f"{HEADER}\n", data_prep.EmptySourceError, None, "no row"),
    ("BOM", "\ufeff" + TEXT, data_prep.ByteOrderMarkError, 1, "byte order mark"),
    ("UTF-16", TEXT.encode("utf-16"), data_prep.SourceFormatError, 1, "UTF-16"),
    ("old Mac", TEXT.replace("\n", "\r"), data_prep.LineEndError, 1, "carriage return"),
    ("unlabelled", TEXT.replace("\n0\t", "\n")[2:], data_prep.ColumnCountError, 1, "unlabelled"),
    ("ARFF", f"@relation x\n{TEXT}", data_prep.ColumnCountError, 1, "ARFF"),
    ("noise", NOISE.replace(b"\n", b""), data_prep.SourceFormatError, 1, "binary"),
    ("endless", b"1" * (1 << 21), data_prep.SourceFormatError, 1, "a line of more than"),
    ("named.gz", TEXT, data_prep.CorruptSourceError, None, "named .gz but not gzip"),
    (
        "wrong name",
        HEADER.replace("I3", "J3") + "\n" + COMMAS,
        data_prep.HeaderError,
        1,
        "lacks I3",
    ),
    ("blank first", "\n" + TEXT, data_prep.HeaderError, 1, "first line is empty. Remove it"),
    ("tabs first", "\t" * 39 + "\n" + TEXT, data_prep.LabelError, 1, "label = ''"),
    (
        "repeated",
        HEADER.replace("I3", "I3,I3") + "\n" + COMMAS,
        data_prep.HeaderError,
        1,
        "header repeats I3",
    ),
    (
        "row names",
        f",{HEADER}\n{COMMAS}",
        data_prep.HeaderError,
        1,
        "has unknown a nameless column",
    ),
    ("order", HEADER.replace("I3,I4", "I4,I3"), data_prep.HeaderError, 1, "orders the columns"),
    ("no click column", HEADER.removeprefix("label,"), data_prep.HeaderError, 1, "unlabelled"),
    ("few", "\n".join(GOOD[:3]), data_prep.TooFewRowsError, None, "3 rows give 3, 0, 0 rows"),
]


def refused(tmp_path: Path, dataset: str, name: str, content: str | bytes) -> Exception:
    source = tmp_path / name
    source.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(data_prep.DataPrepError) as caught:
        data_prep.prepare(dataset, source, tmp_path / "deep" / "out")
    assert os.listdir(tmp_path) == [name], "something was left behind"
    assert str(source) in str(caught.value)
    assert caught.value.remedy
    return caught.value


@pytest.mark.parametrize(
    ("name", "content", "error", "line", "problem"), ROWS + FILES, ids=[c[0] for c in ROWS + FILES]
)
def test_broken_criteo(tmp_path, name, content, error, line, problem):
    found = refused(tmp_path, "criteo", name, content)
    assert type(found) is error and found.line == line and problem in str(found)


@pytest.mark.parametrize(
    ("name", "content", "error", "line", "problem"), AVAZU_ROWS, ids=[c[0] for c in AVAZU_ROWS]
)
def test_broken_avazu(tmp_path, name, content, error, line, problem):
    found = refused(tmp_path, "avazu", name, content)
    assert type(found) is error and found.line == line and problem in str(found)


def test_avazu_without_header_or_without_click(tmp_path):
    absent = refused(tmp_path, "avazu", "train.csv", "\n".join(AVAZU[1:]))
    assert isinstance(absent, data_prep.HeaderError) and absent.line == 1
    assert "header is absent" in absent.problem and reference.AVAZU_HEADER in absent.remedy
    unlabelled = "\n".join(AVAZU).replace("id,click,", "id,")
    lacking = refused(tmp_path, "avazu", "train.csv", unlabelled)
    assert isinstance(lacking, data_prep.HeaderError) and "lacks click" in lacking.problem


@pytest.mark.parametrize("suffix", ["gz", "xz", "zst"])
@pytest.mark.parametrize("damage", ["truncated", "flipped", "trailing"])
def test_damaged_compression_names_the_line_reached(tmp_path, suffix, damage):
    compress = {
        "gz": gzip.compress,
        "xz": lzma.compress,
        "zst": zstandard.ZstdCompressor(write_checksum=True).compress,
    }[suffix]
    whole = compress(reference.criteo_text(3000).encode())
    middle = len(whole) // 2
    broken = {
        "truncated": whole[:-5],
        "flipped": whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :],
        "trailing": whole + b"garbage",
    }[damage]
    found = refused(tmp_path, "criteo", f"train.{suffix}", broken)
    assert type(found) is data_prep.CorruptSourceError and found.line >= 1
    assert ("truncated" in found.problem) == (damage == "truncated")
    if damage == "trailing":
        assert found.line == 3001


def test_containers_and_foreign_files_are_named(tmp_path):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("train.txt", TEXT)
    assert "zip archive" in str(refused(tmp_path, "criteo", "train.zip", made.getvalue()))
    (tmp_path / "train.zip").unlink()
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("train.txt"))
    assert "tar" in str(refused(tmp_path, "criteo", "train.tar.gz", made.getvalue()))


def test_missing_file_directory_and_unreadable_places(tmp_path):
    with pytest.raises(data_prep.SourceNotFoundError, match="no such file"):
        data_prep.prepare("criteo", tmp_path / "none", tmp_path / "out")
    with pytest.raises(data_prep.SourceNotAFileError, match="a directory, not a file"):
        data_prep.prepare("criteo", tmp_path, tmp_path / "out")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(data_prep.SourceNotAFileError, match="not a regular file"):
        data_prep.prepare("criteo", fifo, tmp_path / "out")
    with pytest.raises(data_prep.OutputUnwritableError, match="null is not a directory"):
        data_prep.prepare("criteo", fifo, Path("/dev/null/out"))
    assert os.listdir(tmp_path) == ["fifo"]


def test_a_source_that_cannot_be_looked_at_is_not_taken_for_the_output(tmp_path):
    with pytest.raises(data_prep.SourceUnreadableError, match="xxx: cannot be read .File name too"):
        data_prep.prepare("criteo", tmp_path / ("x" * 300), tmp_path / "out")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "problem"), [("a::b", "chain of file systems"), ("\udcff", "not UTF-8 text")]
)
def test_outputs_that_datasets_could_not_open_are_refused(tmp_path, name, problem):
    source = tmp_path / "train.txt"
    source.write_text(TEXT)
    with pytest.raises(data_prep.OutputUnwritableError, match=problem):
        data_prep.prepare("criteo", source, tmp_path / "made" / name)
    assert os.listdir(tmp_path) == ["train.txt"]


def test_a_full_disk_is_named_while_synthetic_rows_are_written(tmp_path, monkeypatch):
    class Full(io.BytesIO):
        def write(self, data):
            raise OSError(errno.ENOSPC, "No space left on device")

    opened = Path.open

    def fail(path, *arguments, **options):
        return Full() if "synthetic" in path.name else opened(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", fail)
    with pytest.raises(data_prep.DiskFullError, match="no space left"):
        data_prep.prepare_synthetic("criteo", 100, tmp_path / "out")
    assert os.listdir(tmp_path) == []


def test_what_a_killed_run_left_is_removed_and_what_a_living_one_has_is_not(tmp_path):
    source, out = tmp_path / "train.txt", tmp_path / "out"
    source.write_text(TEXT)
    left = tmp_path / ".out.partial-killed"
    (left / "scratch").mkdir(parents=True)
    (left / "scratch" / "part-000000.parquet").write_bytes(b"0")
    others = {".other.partial-killed", "out.partial-mine"}
    for name in others:
        (tmp_path / name).mkdir()
    with staged(out) as (filled, _):
        assert not left.exists()
        data_prep.prepare("criteo", source, tmp_path / "second")
        with staged(out):
            assert filled.exists()
        (out / "theirs").touch()
        assert filled.exists()
        out.rename(tmp_path / "away")
    left.mkdir()
    with pytest.raises(data_prep.OutputExistsError):
        data_prep.prepare("criteo", source, out)
    assert set(os.listdir(tmp_path)) == {"train.txt", "out", "second", "away", *others}


def test_a_directory_that_another_run_sweeps_before_it_is_locked_is_made_again(
    tmp_path, monkeypatch
):
    lock, met = staging_module._lock, []

    def swept(directory):
        met.append(directory)
        if len(met) == 1:
            directory.rmdir()
        return lock(directory)

    monkeypatch.setattr(staging_module, "_lock", swept)
    with staged(tmp_path / "out") as (filled, _):
        assert filled.parent == met[1] != met[0]
    assert os.listdir(tmp_path) == ["out"]


def test_a_file_system_without_locks_is_not_swept(tmp_path, monkeypatch):
    def refuse(*arguments):
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(staging_module.fcntl, "flock", refuse)
    left = tmp_path / ".out.partial-unknown"
    left.mkdir()
    with staged(tmp_path / "out"):
        pass
    assert sorted(os.listdir(tmp_path)) == [left.name, "out"]


def test_a_second_interrupt_does_not_stop_the_cleaning(tmp_path, monkeypatch):
    remove, calls = staging_module.shutil.rmtree, []

    def interrupted(*arguments, **options):
        calls.append(arguments)
        if len(calls) < 3:
            raise KeyboardInterrupt
        remove(*arguments, **options)

    monkeypatch.setattr(staging_module.shutil, "rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt), staged(tmp_path / "out"):
        raise KeyboardInterrupt
    assert len(calls) == 3 and os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["out", "made/out"])
def test_a_place_that_may_not_be_searched_is_named(tmp_path, monkeypatch, name):
    """As root, tests may search everything, so the system's refusal is made up."""
    closed = tmp_path / "closed"
    closed.mkdir()

    def refusing(function):
        def call(path, *arguments, **options):
            if str(path).startswith(f"{closed}/"):
                raise PermissionError(errno.EACCES, "Permission denied")
            return function(path, *arguments, **options)

        return call

    for function in ("stat", "lstat", "mkdir"):
        monkeypatch.setattr(os, function, refusing(getattr(os, function)))
    with pytest.raises(data_prep.OutputUnwritableError, match="out: cannot be written .Permission"):
        data_prep.prepare("criteo", tmp_path / "train.txt", closed / name)


def test_existing_output_is_left_as_it_is(tmp_path):
    source, out = tmp_path / "train.txt", tmp_path / "out"
    source.write_text(TEXT)
    out.mkdir()
    with pytest.raises(data_prep.OutputExistsError, match="out: the output is there already"):
        data_prep.prepare("criteo", source, out)
    assert sorted(os.listdir(tmp_path)) == ["out", "train.txt"] and not os.listdir(out)


def test_output_made_meanwhile_by_another_process_is_left_as_it_is(tmp_path, monkeypatch):
    source, out = tmp_path / "train.txt", tmp_path / "out"
    source.write_text(TEXT)
    rows = splits_module.SplitPolicy.rows

    def other_process(self, *arguments):
        out.mkdir()
        (out / "theirs").touch()
        return rows(self, *arguments)

    monkeypatch.setattr(splits_module.SplitPolicy, "rows", other_process)
    with pytest.raises(data_prep.OutputExistsError):
        data_prep.prepare("criteo", source, out)
    assert sorted(os.listdir(tmp_path)) == ["out", "train.txt"]
    assert os.listdir(out) == ["theirs"]


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), data_prep.DiskFullError),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), data_prep.DiskFullError),
        (OSError(errno.EFBIG, "File too large"), data_prep.OutputUnwritableError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (MemoryError(), MemoryError),
    ],
)
@pytest.mark.parametrize("place", ["spool", "write"])
def test_full_disk_and_interrupt_leave_nothing(tmp_path, monkeypatch, place, raised, expected):
    source = tmp_path / "train.txt"
    source.write_text(TEXT)

    def fail(*arguments):
        raise raised

    if place == "spool":
        monkeypatch.setattr(Spool, "append", fail)
    else:
        monkeypatch.setattr(writer_module.Table, "batch", fail)
    with pytest.raises(expected) as caught:
        data_prep.prepare("criteo", source, tmp_path / "a" / "b" / "out")
    assert type(caught.value) is expected
    assert os.listdir(tmp_path) == ["train.txt"]


def test_skip_leaves_out_and_counts_by_reason(tmp_path):
    fields = [row.split("\t") for row in GOOD]
    fields[2][0] = "5"
    fields[4] = fields[4][:-1]
    fields[6][1] = "one"
    fields[6][20] = "zz"  # a second fault in the same row, counted once
    fields[8][39] = "xyz"
    fields[9][39] = "xyz"
    lines = ["\t".join(row) for row in fields]
    lines[11] += "\r"
    source = tmp_path / "train.txt"
    source.write_text("\n".join(lines), newline="")
    manifest = data_prep.prepare("criteo", source, tmp_path / "out", on_bad_row="skip")
    assert manifest["bad_rows"] == {
        "line-end": 1,
        "column-count": 1,
        "label": 1,
        "number": 1,
        "category": 2,
    }
    assert manifest["bad_rows_first_line"] == {
        "line-end": 12,
        "column-count": 5,
        "label": 3,
        "number": 7,
        "category": 9,
    }
    kept = tmp_path / "kept.txt"
    bad = {2, 4, 6, 8, 9, 11}
    kept.write_text("\n".join(line for i, line in enumerate(lines) if i not in bad))
    clean = data_prep.prepare("criteo", kept, tmp_path / "clean")
    assert manifest["splits"] == clean["splits"] and manifest["rows"] == 24


def test_skip_does_not_hide_a_file_without_a_usable_row(tmp_path):
    source = tmp_path / "train.txt"
    source.write_text("\n".join("7" + line[1:] for line in GOOD))
    with pytest.raises(data_prep.EmptySourceError, match="no usable row .30 left out"):
        data_prep.prepare("criteo", source, tmp_path / "out", on_bad_row="skip")


def test_a_line_number_counts_every_physical_line_across_chunks(tmp_path):
    source = tmp_path / "train.csv"
    rows = [line.replace("\t", ",") for line in GOOD * 40]
    rows[1000] = rows[1000][1:]
    source.write_text("\n".join([HEADER, *rows]))
    for chunk_bytes in (1, 1000, 1 << 20):
        spool_directory = tmp_path / str(chunk_bytes)
        spool_directory.mkdir()
        with pytest.raises(data_prep.LabelError) as caught:
            read_source(
                source,
                CRITEO,
                Spool(spool_directory),
                decimals=False,
                skip=False,
                chunk_bytes=chunk_bytes,
            )
        assert caught.value.line == 1002


def test_an_endless_line_in_the_middle_is_not_gathered_in_memory(tmp_path):
    source = tmp_path / "train.txt"
    source.write_bytes(TEXT.encode() + b"0" * (1 << 24))
    reader = LineReader(source, SourceFile(source).blocks(), chunk_bytes=1 << 12)
    with pytest.raises(data_prep.SourceFormatError, match="a line of more than") as caught:
        list(reader.chunks())
    assert caught.value.line == 31
