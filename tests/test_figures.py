import csv
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from matplotlib.image import imread
from matplotlib.lines import Line2D

import figures
from erase_core.bench import RunRecord, records
from erase_core.bench.throughput import COLUMNS as THROUGHPUT
from erase_core.ctr.experiment import COLUMNS as ENTROPY
from figures import FIGURES, make, style
from figures.__main__ import _parser, main
from figures.citation import BIBTEX

PROJECT = Path(__file__).resolve().parents[1]


def throughput_row(**changes):
    row = {
        "device": "NVIDIA H200",
        "torch": "2.11.0",
        "commit": "0123456789ab",
        "dataset": "synthetic-criteo",
        "model": "proxy",
        "blocks": 8,
        "width": 256,
        "precision": "bfloat16",
        "batch_size": 512,
        "arm": "baseline",
        "gradients": "exact",
        "window": 0,
        "step_time_us": 1000.0,
    } | changes
    if "examples_per_s" not in row:
        time = row["step_time_us"]
        row["examples_per_s"] = "" if time == "" else row["batch_size"] * 1e6 / time
    return row


def throughput_rows():
    """Three batch sizes; `early` is 1.25 × as fast, was not run at 1024, does not fit at 2048."""
    rows = []
    for batch in (512, 1024, 2048):
        for window in range(4):
            time = 1000.0 + 10 * window
            common = {"batch_size": batch, "window": window}
            rows.append(throughput_row(**common, step_time_us=time))
            if batch == 512:
                rows.append(throughput_row(**common, arm="early", step_time_us=time / 1.25))
    empty = {"window": "", "step_time_us": ""}
    return [*rows, throughput_row(batch_size=2048, arm="early", **empty)]


def entropy_row(**changes):
    row = {
        "device": "NVIDIA H200",
        "torch": "2.11.0",
        "commit": "0123456789ab",
        "dataset": "criteo-sample",
        "model": "proxy",
        "blocks": 8,
        "arm": "baseline",
        "gradients": "exact",
        "seed": 0,
        "examples_seen": 1000,
        "split": "test",
        "normalized_entropy": 0.86,
        "auc": 0.78,
        "calibration": 1.01,
    } | changes
    entropy = row["normalized_entropy"]
    row.setdefault("log_loss", "" if entropy == "" else entropy * 0.569)
    return row


def entropy_rows():
    """`detached` is 1 % worse for every seed; logistic regression and the optimum are known."""
    rows = [
        entropy_row(
            arm=arm,
            seed=seed,
            examples_seen=seen,
            split=split,
            normalized_entropy=factor * (0.85 + 0.1 / seen + 0.001 * seed),
        )
        for split, points in (("valid", (20, 40)), ("test", (10, 20, 30, 40)))
        for arm, factor in (("baseline", 1.0), ("detached", 1.01))
        for seed in (0, 1)
        for seen in points
    ]
    rows.append(entropy_row(model="logistic-regression", blocks=1, normalized_entropy=0.851))
    rows.append(entropy_row(model="bayes", blocks="", seed="", normalized_entropy=0.80))
    return rows


def write(path, rows, columns):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture
def speeds(tmp_path):
    return write(tmp_path / "throughput.csv", throughput_rows(), THROUGHPUT)


@pytest.fixture
def entropies(tmp_path):
    return write(tmp_path / "normalized_entropy.csv", entropy_rows(), ENTROPY)


@pytest.fixture
def csvs(speeds, entropies):
    return {"throughput": speeds, "normalized-entropy": entropies}


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_in_three_formats_with_its_provenance(tmp_path, csvs, name):
    paths = make(name, tmp_path / "out", [csvs[name]], command=["python", "-m", "figures", name])
    stem = name.replace("-", "_")
    assert [path.name for path in paths] == [f"{stem}.{s}" for s in ("pdf", "svg", "png", "json")]
    sidecar = json.loads(paths[-1].read_text())
    for path in paths[:-1]:
        assert sidecar["sha256"][path.name] == hashlib.sha256(path.read_bytes()).hexdigest()
    (source,) = sidecar["rows"]
    assert source["sha256"] == hashlib.sha256(csvs[name].read_bytes()).hexdigest()
    assert source["commits"] == sidecar["commits"] == ["0123456789ab"]
    assert sidecar["command"] == f"python -m figures {name}"
    assert sidecar["bibtex"] == BIBTEX
    assert source["dirty"] is False
    assert sidecar["data"] == (["synthetic"] if name == "throughput" else ["sample"])
    assert ("synthetic" if name == "throughput" else "Criteo (sample)") in sidecar["caption"]
    height, width = imread(paths[2]).shape[:2]
    assert width == pytest.approx(style.COLUMN_WIDTH * 300, abs=1)
    assert height < 1.5 * width


@pytest.mark.parametrize("name", FIGURES)
def test_regenerated_in_another_process_the_bytes_are_the_same(tmp_path, csvs, name):
    here = {path.suffix: path.read_bytes() for path in make(name, tmp_path / "here", [csvs[name]])}
    # Another hash seed, time zone and user configuration must leave no mark.
    (tmp_path / "matplotlibrc").write_text("lines.linewidth: 5\nfont.size: 20\n")
    environment = os.environ | {
        "PYTHONHASHSEED": "1",
        "TZ": "Asia/Tokyo",
        "MATPLOTLIBRC": str(tmp_path / "matplotlibrc"),
        "OMP_NUM_THREADS": "1",
    }
    out = tmp_path / "there"
    command = ["-m", "figures", name, "--rows", str(csvs[name]), "--out", str(out)]
    subprocess.run(
        [sys.executable, *command], env=environment, cwd=PROJECT, check=True, timeout=120
    )
    there = {path.suffix: path.read_bytes() for path in out.iterdir()}
    assert set(there) == set(here)
    for suffix in (".pdf", ".svg", ".png"):
        assert here[suffix] == there[suffix]
    sidecars = [json.loads(made[".json"]) for made in (here, there)]
    assert sidecars[0].pop("command") != sidecars[1].pop("command")
    assert sidecars[0] == sidecars[1]
    assert b"CreationDate" not in here[".pdf"]


def test_throughput_is_summarised_by_arm_and_batch_size(speeds):
    (panel,) = figures.speeds.summarize_rows(FIGURES["throughput"].rows([speeds]))
    points = {(point.batch_size, point.arm): point for point in panel.points}
    assert set(points) == {(b, "baseline") for b in (512, 1024, 2048)} | {
        (512, "early"),
        (2048, "early"),
    }
    ratio = points[512, "early"].ratio
    assert (ratio.estimate, ratio.low, ratio.high) == pytest.approx((1.25, 1.25, 1.25))
    assert points[512, "baseline"].summary.samples == 4
    assert points[2048, "early"].summary is points[2048, "early"].ratio is None


def drawn(name, path):
    with style.styled():
        return FIGURES[name].draw(FIGURES[name].rows([path]))


def lines_of(axes, look):
    return [line for line in axes.lines if line.get_color() == look.color]


def test_what_was_not_measured_is_a_gap_and_oom_is_written(speeds):
    figure = drawn("throughput", speeds)
    (line,) = lines_of(figure.axes[0], style.ARMS["early"])
    assert [bool(y == y) for y in line.get_ydata()] == [True, False, False]
    (label,) = [text for text in figure.axes[0].texts if text.get_text() == "OOM"]
    assert label.xy[0] == 2048
    assert label.get_color() == style.ARMS["early"].color


def test_at_a_single_batch_size_arms_stand_side_by_side(tmp_path):
    rows = [row for row in throughput_rows() if row["batch_size"] == 512]
    axes = drawn("throughput", write(tmp_path / "rows.csv", rows, THROUGHPUT)).axes[0]
    places = [lines_of(axes, style.ARMS[arm])[0].get_xdata()[0] for arm in ("baseline", "early")]
    assert places[0] < 512 < places[1]
    assert len([label for label in axes.get_yticks() if axes.get_ylim()[0] < label]) >= 2


def test_curves_bands_and_levels_of_normalized_entropy(entropies):
    (panel,) = figures.curves.summarize_rows(FIGURES["normalized-entropy"].rows([entropies]))
    assert panel.split == "test"  # of the two it has more evaluations
    assert panel.levels == {"Bayes optimum": 0.80, "logistic regression": 0.851}
    assert panel.relative("detached").to_numpy() == pytest.approx(1.0)
    figure = drawn("normalized-entropy", entropies)
    (line,) = lines_of(figure.axes[0], style.ARMS["detached"])
    assert line.get_ydata()[-1] == pytest.approx(1.01 * (0.85 + 0.1 / 40 + 0.0005))
    assert {text.get_text() for text in figure.legends[0].texts} == {
        "baseline",
        "detached",
        "Bayes optimum",
        "logistic regression",
    }


def test_a_diverged_seed_breaks_the_curve_and_is_named_in_the_table(tmp_path):
    rows = entropy_rows()
    diverged = [row for row in rows if (row["arm"], row["seed"]) == ("detached", 1)]
    for row in diverged:
        if row["examples_seen"] == 40:
            row.update(normalized_entropy="nan", log_loss="nan")
    path = write(tmp_path / "rows.csv", rows, ENTROPY)
    (line,) = lines_of(drawn("normalized-entropy", path).axes[0], style.ARMS["detached"])
    assert [bool(y == y) for y in line.get_ydata()] == [True, True, True, False]
    table = FIGURES["normalized-entropy"].table(FIGURES["normalized-entropy"].rows([path]))
    assert "diverged in 1 of 2" in table


@pytest.mark.parametrize("other", [{"dataset": "synthetic-avazu"}, {"device": "NVIDIA A100"}])
def test_unlike_rows_never_share_a_panel(tmp_path, other):
    rows = throughput_rows() + [{**row, **other} for row in throughput_rows()]
    figure = drawn("throughput", write(tmp_path / "rows.csv", rows, THROUGHPUT))
    first, second = (axes.get_title() for axes in figure.axes[:2])
    assert first != second
    assert "synthetic" in first
    assert "synthetic" in second


def record_run(directory, rows, error=None, experiment="throughput", columns=THROUGHPUT):
    try:
        with RunRecord(directory, experiment, {}) as record:
            record.write_rows(rows, columns)
            if error is not None:
                raise error
    except (RuntimeError, MemoryError):
        pass


def test_own_runs_stand_beside_the_reference_if_complete(tmp_path, speeds):
    runs = tmp_path / "runs"
    record_run(runs / "a", throughput_rows())
    record_run(runs / "b", throughput_rows(), RuntimeError("broken"))
    records.mark(runs / "c", "running")
    with RunRecord(runs / "d", "another", {}):
        pass
    rows = FIGURES["throughput"].rows([speeds], runs)
    assert [panel.origin for panel in figures.speeds.summarize_rows(rows)] == [
        "reference",
        "own run",
    ]
    assert len(rows.sources) == 2
    assert rows.skipped == {(runs / "b").as_posix(): "failed: RuntimeError: broken"}
    with style.styled():
        titles = [axes.get_title() for axes in FIGURES["throughput"].draw(rows).axes[:2]]
    assert ["own run" in title for title in titles] == [False, True]


def test_a_cell_in_which_nothing_fits_is_labelled(tmp_path):
    empty = [throughput_row(window="", step_time_us="", batch_size=1 << 20)]
    record_run(tmp_path / "fits", throughput_rows())
    record_run(tmp_path / "full", empty, MemoryError())
    rows = figures.speeds.summarize_rows(figures.rows.load(figures.speeds.EXPERIMENT, [], tmp_path))
    assert rows[0].points[-1] == figures.speeds.Point("baseline", 1 << 20, None, None)


def test_windows_of_different_runs_are_not_paired(tmp_path):
    record_run(tmp_path / "a", [throughput_row(window=w) for w in range(3)])
    record_run(tmp_path / "b", [throughput_row(window=w, arm="early") for w in range(3)])
    (panel,) = figures.speeds.summarize_rows(
        figures.rows.load(figures.speeds.EXPERIMENT, [], tmp_path)
    )
    assert {point.arm: point.ratio for point in panel.points}["early"] is None


def test_rows_changed_after_the_run_are_refused(tmp_path):
    record_run(tmp_path / "a", throughput_rows())
    with (tmp_path / "a" / "rows.csv").open("a") as file:
        file.write("\n")
    with pytest.raises(figures.RowsError, match="SHA-256"):
        figures.rows.load(figures.speeds.EXPERIMENT, [], tmp_path)


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ([], figures.EmptyRowsError, "no rows"),
        (
            [throughput_row(step_time_us=1.0, examples_per_s=512e3)],
            figures.UnitsError,
            "microseconds",
        ),
        ([throughput_row(), throughput_row()], figures.DuplicateRowsError, "more than once"),
        (
            [throughput_row(step_time_us="fast", examples_per_s=1)],
            figures.RowsError,
            "line 2: `step_time_us`",
        ),
    ],
)
def test_bad_throughput_rows(tmp_path, rows, error, message):
    path = write(tmp_path / "rows.csv", rows, THROUGHPUT)
    with pytest.raises(error, match=message):
        FIGURES["throughput"].rows([path])


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ([entropy_row(log_loss=0.86)], figures.UnitsError, "nats"),
        (
            [entropy_row(), entropy_row(seed=1, log_loss=0.86 * 0.46)],
            figures.UnitsError,
            "different click rates",
        ),
        ([entropy_row(), entropy_row()], figures.DuplicateRowsError, "seed 0 at 1000"),
    ],
)
def test_bad_entropy_rows(tmp_path, rows, error, message):
    path = write(tmp_path / "rows.csv", rows, ENTROPY)
    with pytest.raises(error, match=message):
        FIGURES["normalized-entropy"].rows([path])


def test_reference_predictors_alone_are_no_curve(tmp_path):
    path = write(tmp_path / "rows.csv", [entropy_row(model="bayes")], ENTROPY)
    with pytest.raises(figures.EmptyRowsError, match="no curve"):
        drawn("normalized-entropy", path)


def test_a_missing_column_is_named(tmp_path):
    columns = [column for column in THROUGHPUT if column != "window"]
    rows = [{key: row[key] for key in columns} for row in throughput_rows()]
    path = write(tmp_path / "rows.csv", rows, columns)
    with pytest.raises(figures.MissingColumnError, match=r"rows\.csv lacks .* window;"):
        FIGURES["throughput"].rows([path])


def test_missing_rows_are_named(tmp_path):
    with pytest.raises(figures.MissingRowsError, match=r"absent\.csv"):
        FIGURES["throughput"].rows([tmp_path / "absent.csv"])
    with pytest.raises(figures.MissingRowsError, match="not a directory"):
        FIGURES["throughput"].rows([], tmp_path / "runs")
    with pytest.raises(figures.MissingRowsError, match="--runs"):
        figures.rows.load(figures.speeds.EXPERIMENT, [], tmp_path)


def test_an_empty_file_is_no_csv(tmp_path):
    path = tmp_path / "rows.csv"
    path.touch()
    with pytest.raises(figures.RowsError, match="no CSV"):
        FIGURES["throughput"].rows([path])


def test_tables_on_the_command_line(csvs, capsys):
    assert main(["table", "throughput", "--rows", str(csvs["throughput"])]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len({line.count("|") for line in lines}) == 1
    assert any("| 512 | early |" in line and "1.250 [1.250, 1.250] | 4 |" in line for line in lines)
    assert any("| 2048 | early | out of memory |" in line for line in lines)
    assert main(["table", "normalized-entropy", "--rows", str(csvs["normalized-entropy"])]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len({line.count("|") for line in lines}) == 1
    assert any(
        "| detached | 40 | 2 |" in line and "| 1.000 [1.000, 1.000] |" in line for line in lines
    )
    assert any(line.startswith("| Bayes optimum | Criteo (sample) |") for line in lines)


def test_an_error_in_the_rows_is_one_line_and_writes_nothing(tmp_path, capsys):
    arguments = ["--rows", str(tmp_path / "absent.csv"), "--out", str(tmp_path / "out")]
    assert main(["throughput", *arguments]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: throughput: ")
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "arguments",
    [["table"], ["throughput", "throughput"], ["all", "--rows", "x.csv"], ["histogram"]],
)
def test_contradictory_command_lines(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert "usage" in capsys.readouterr().err


def test_looks_differ_in_colour_and_marker_and_unknown_arms_get_one():
    looks = style.looks([*style.ARMS, "mine", "yours"])
    assert list(looks) == [*style.ARMS, "mine", "yours"]
    assert len({look.color for look in looks.values()}) == len(looks)
    assert len({look.marker for look in looks.values()}) == len(looks)


def test_committed_reference_rows_can_be_drawn(tmp_path):
    present = [name for name, spec in FIGURES.items() if spec.reference.exists()]
    if not present:
        pytest.skip("figures/data has no reference rows")
    for name in present:
        assert make(name, tmp_path)


@pytest.mark.parametrize("columns", [1, 2, 3, 4])
def test_the_legend_lies_inside_the_figure(columns):
    with style.styled():
        figure, *_ = style.panels(columns)
        levels = [Line2D([], [], label=label) for label in ("Bayes optimum", "logistic regression")]
        style.legend(figure, style.ARMS, levels)
        figure.draw_without_rendering()
        (box,) = (legend.get_window_extent() for legend in figure.legends)
    assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
    assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1
    assert len(figure.legends[0].texts) == len(style.ARMS) + len(levels)


def remarks(figure):
    """Texts and vertical ticks of the lower panel of a figure with one column."""
    lower = figure.axes[1]
    return [text.get_text() for text in lower.texts], list(lower.get_yticks())


@pytest.mark.parametrize(
    ("arms", "remark"),
    [
        (("detached", "early"), "no baseline run"),
        (("baseline",), "baseline alone"),
    ],
)
def test_an_empty_lower_panel_says_why(tmp_path, arms, remark):
    rows = [throughput_row(arm=arm, window=w) for w in range(3) for arm in arms]
    path = write(tmp_path / "throughput.csv", rows, THROUGHPUT)
    assert remarks(drawn("throughput", path)) == ([remark], [])
    assert "Bottom" not in caption("throughput", path)
    rows = [entropy_row(arm=arm, examples_seen=seen) for arm in arms for seen in (10, 20)]
    path = write(tmp_path / "normalized_entropy.csv", rows, ENTROPY)
    assert remarks(drawn("normalized-entropy", path)) == ([remark], [])
    assert "Bottom" not in caption("normalized-entropy", path)


def test_a_baseline_of_other_seeds_is_not_compared_with(tmp_path):
    rows = [entropy_row(), entropy_row(arm="early", seed=1)]
    path = write(tmp_path / "rows.csv", rows, ENTROPY)
    assert remarks(drawn("normalized-entropy", path)) == (["nothing pairs with baseline"], [])


def test_a_lower_panel_with_ratios_has_no_remark(csvs):
    for name, path in csvs.items():
        texts, ticks = remarks(drawn(name, path))
        assert not texts
        assert ticks


def caption(name, path=None, runs=None):
    spec = FIGURES[name]
    return spec.caption(spec.rows([path] if path else [], runs))


def test_the_caption_names_arms_whose_curves_hide_one_another(tmp_path, entropies):
    assert "coincide" not in caption("normalized-entropy", entropies)
    rows = entropy_rows()
    rows += [
        row | {"arm": arm}
        for row in rows
        for arm in ("early", "erase-threaded")
        if row["arm"] == "detached"
    ]
    path = write(tmp_path / "rows.csv", rows, ENTROPY)
    expected = " erase-threaded coincides with detached and early."
    assert expected in caption("normalized-entropy", path)
    other = [row | {"dataset": "criteo-full"} for row in rows]
    for row in other:
        if row["arm"] == "erase-threaded":
            row["normalized_entropy"] += 1e-6
    path = write(tmp_path / "rows.csv", rows + other, ENTROPY)
    text = caption("normalized-entropy", path)
    assert " early coincides with detached in panel 1 from the left." in text
    assert " erase-threaded coincides with detached and early in panel 2 from the left." in text


def labelled(batches, tmp_path):
    rows = [throughput_row(batch_size=b, window=w) for b in batches for w in range(2)]
    rows += [row | {"arm": "early"} for row in rows]
    path = write(tmp_path / "rows.csv", rows, THROUGHPUT)
    figure = drawn("throughput", path)
    figure.draw_without_rendering()
    lower = figure.axes[1]
    assert list(lower.get_xticks()) == batches
    labels = [label for label in lower.get_xticklabels() if label.get_text()]
    boxes = [label.get_window_extent() for label in labels]
    assert all(one.x1 < other.x0 for one, other in zip(boxes, boxes[1:], strict=False))
    return [label.get_text() for label in labels]


def test_batch_sizes_are_labelled_where_labels_do_not_overlap(tmp_path):
    assert labelled([256, 1024, 4096, 16384, 32768, 65536], tmp_path) == [
        *("256", "1k", "4k", "16k", "32k", "64k")
    ]
    crowded = labelled([2**n for n in range(4, 25)], tmp_path)
    assert 5 < len(crowded) < 21
    assert crowded[-1] == "16384k"


def test_the_rows_of_panels_share_a_line_of_labels(csvs):
    for name, path in csvs.items():
        figure = drawn(name, path)
        with style.styled():
            figure.draw_without_rendering()
        labels = [axes.yaxis.label.get_window_extent() for axes in figure.axes[:2]]
        assert labels[0].x1 == pytest.approx(labels[1].x1, abs=0.5)


def test_the_command_is_recorded_also_where_none_is_given(tmp_path, speeds):
    runs = tmp_path / "my runs"
    record_run(runs / "a", throughput_rows())
    *_, path = make("throughput", tmp_path / "out", [speeds], runs)
    assert json.loads(path.read_text())["command"] == (
        f"python -m figures throughput --rows {speeds} --runs '{runs}' --out {tmp_path / 'out'}"
    )
    out = PROJECT / "runs" / "x"
    assert figures.registry._command("throughput", out, [], None)[-2:] == ["--out", "runs/x"]


def test_the_readme_cites_as_the_sidecars_do():
    readme = (PROJECT / "README.md").read_text()
    assert [key for key, entry in BIBTEX.items() if entry not in readme] == []
    assert all(entry.splitlines()[0].endswith(f"{{{key},") for key, entry in BIBTEX.items())


@pytest.mark.parametrize(
    ("commit", "dirty"), [("0123456789ab", False), ("0123456789ab-dirty", True), ("unknown", None)]
)
def test_a_source_says_whether_its_files_were_changed(tmp_path, monkeypatch, commit, dirty):
    path = write(tmp_path / "rows.csv", [throughput_row(commit=commit)], THROUGHPUT)
    assert FIGURES["throughput"].rows([path]).sources[0].dirty is dirty
    monkeypatch.setattr(records, "commit", lambda: (commit, dirty))
    record_run(tmp_path / "runs" / "a", throughput_rows())
    (own,) = figures.rows.load(figures.speeds.EXPERIMENT, [], tmp_path / "runs").sources
    assert own.dirty is dirty


def test_captions_explain_own_runs_and_count_in_words(tmp_path, csvs):
    for name, path in csvs.items():
        text = caption(name, path)
        assert "`" not in text
        assert "own run" not in text
        assert "(s)" not in text
    assert "mean over 2 seeds; bands" in caption("normalized-entropy", csvs["normalized-entropy"])
    path = write(tmp_path / "one.csv", [entropy_row()], ENTROPY)
    assert "mean over 1 seed." in caption("normalized-entropy", path)
    record_run(tmp_path / "runs" / "a", throughput_rows())
    record_run(tmp_path / "runs" / "b", entropy_rows(), None, "normalized_entropy", ENTROPY)
    for name, path in csvs.items():
        text = caption(name, path, tmp_path / "runs")
        assert 'Panels headed "own run" show complete runs of the reader\'s own;' in text
        assert f"; the others show the reference rows in {path}." in text


def test_the_throughput_caption_claims_pooling_and_interleaving_only_where_true(tmp_path, speeds):
    assert "interleaved" in caption("throughput", speeds)
    assert "pooled" not in caption("throughput", speeds)
    record_run(tmp_path / "runs" / "a", throughput_rows())
    assert "pooled" not in caption("throughput", speeds, tmp_path / "runs")
    record_run(tmp_path / "runs" / "b", throughput_rows())
    assert "of up to 2 runs of the same cell are pooled" in caption(
        "throughput", speeds, tmp_path / "runs"
    )
    rows = [throughput_row(arm=arm, window=w) for arm in ("baseline", "early") for w in range(3)]
    path = write(tmp_path / "rows.csv", rows, THROUGHPUT)
    assert "interleaved" not in caption("throughput", path)
    assert "paired by window" in caption("throughput", path)


def test_a_reader_that_goes_away_is_no_error(speeds):
    command = [sys.executable, "-m", "figures", "table", "throughput", "--rows", str(speeds)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=PROJECT, text=True, **pipes) as program:
        program.stdout.close()
        assert program.stderr.read() == ""
        assert program.wait(timeout=120) == 141


def test_figures_go_to_the_project_whichever_the_current_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert _parser().parse_args(["all"]).out == PROJECT / "figures"
