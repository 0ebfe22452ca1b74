"""Command line of data preparation."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from .errors import DataPrepError, OptionError
from .pipeline import prepare, prepare_synthetic
from .plan import ON_BAD_ROW
from .recipes import RECIPES
from .splits import POLICIES, SPLITS

_DESCRIPTION = """\
Turn raw click logs into a memory-mapped Hugging Face data set with a manifest.

  criteo     Kaggle's train.txt: label, I1-I13, C1-C26, tab separated, without header, empty =
             missing; also comma separated, and with a header (an Id column before the label is
             ignored)
  avazu      Kaggle's train.csv, with its header
  synthetic  made-up rows in either form, from a planted teacher whose normalized entropy is known

Files may be plain or compressed with gzip, xz, zstd or bzip2."""

_EPILOG = """\
recipes:
  log-bins       Criteo: an integer x > 2 becomes floor((ln x)^2), and integers are categories too
  standardize    Criteo: integers become sign(x) ln(1 + |x|), standardised; missing is 0
  hour-features  Avazu: hour becomes hour of day, weekday and weekend; all columns are categories

The output directory opens with datasets.load_from_disk(OUT): splits train, valid and test with
columns label, dense (recipe standardize alone) and ids. OUT/manifest.json holds counts, click
rates, field cardinalities, recipe, source and fingerprint; OUT/vocabularies the value behind each
id. Vocabularies and scalings come from the training split alone. In every field id 0 is a missing
value, 1 a rare or unseen one, 2 the most frequent one, and so on. OUT appears complete or not at
all; what a killed run left beside it is removed by the next run with the same OUT.

examples:
  python -m data_prep criteo --source train.txt.gz --out data/criteo
  python -m data_prep criteo --source train.txt --out data/dense --recipe standardize --min-count 2
  python -m data_prep avazu --source train.gz --out data/avazu --split random --seed 2018
  python -m data_prep synthetic --name criteo --rows 1000000 --out data/synthetic"""


def _add_common(parser: argparse.ArgumentParser, recipes: list[str], default: str) -> None:
    parser.add_argument(
        "--out", type=Path, required=True, help="directory to make; must not exist yet"
    )
    parser.add_argument("--recipe", choices=recipes, help=f"default: {default}")
    parser.add_argument(
        "--min-count",
        type=int,
        metavar="N",
        help="training rows that a value needs for an id of its own (default: criteo 10, avazu 2)",
    )
    parser.add_argument(
        "--split",
        choices=POLICIES,
        default="time",
        help="time: the last rows are the test rows, those before them the validation rows "
        "(Criteo in file order, Avazu by hour); random: drawn with --seed (default: %(default)s)",
    )
    for name in ("test", "valid"):
        parser.add_argument(
            f"--{name}-fraction",
            type=float,
            default=0.1,
            metavar="F",
            help="part of all rows (default: %(default)s)",
        )
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--quiet", action="store_true", help="no progress bars")


def make_parser() -> argparse.ArgumentParser:
    """Build the argument parser of `python -m data_prep`."""
    parser = argparse.ArgumentParser(
        prog="python -m data_prep",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for dataset, recipes in RECIPES.items():
        command = commands.add_parser(dataset, help=f"prepare a raw {dataset.capitalize()} file")
        command.add_argument("--source", type=Path, required=True, help="the raw file")
        names = [recipe.name for recipe in recipes]
        _add_common(command, names, names[0])
        command.add_argument(
            "--on-bad-row",
            choices=ON_BAD_ROW,
            default="error",
            help="stop at a row that cannot be used, or leave it out and count it by reason in "
            "the manifest (default: %(default)s)",
        )
    command = commands.add_parser("synthetic", help="generate synthetic rows and prepare them")
    command.add_argument(
        "--name", choices=list(RECIPES), default="criteo", help="form (default: %(default)s)"
    )
    command.add_argument("--rows", type=int, default=1_000_000, help="default: %(default)s")
    names = [recipe.name for recipes in RECIPES.values() for recipe in recipes]
    _add_common(command, names, "criteo log-bins, avazu hour-features")
    return parser


def summary(manifest: dict[str, Any], out: Path) -> str:
    """Tell a person what was prepared."""
    lines = [f"{manifest['dataset']} ({manifest['recipe']['name']}) in {out}"]
    for name in SPLITS:
        split = manifest["splits"][name]
        line = (
            f"  {name:5}  {split['rows']:>12,} rows  {split['clicks']:>12,} clicks  "
            f"click rate {split['click_rate']:.4f}"
        )
        bayes = split.get("bayes_normalized_entropy")
        lines.append(line if bayes is None else f"{line}  Bayes-optimal NE {bayes:.4f}")
    lines.append(
        f"  {len(manifest['dense'])} dense inputs, {len(manifest['categorical'])} categorical "
        f"fields, {sum(manifest['cardinalities']):,} ids"
    )
    for reason, count in manifest["bad_rows"].items():
        first = manifest["bad_rows_first_line"][reason]
        lines.append(f"  left out {count:,} rows for {reason}, the first at line {first}")
    lines.append(f"  fingerprint {manifest['fingerprint']}")
    return "\n".join(lines)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status: 0, 1 for bad data, 2 for bad options."""
    parser = make_parser()
    options = vars(parser.parse_args(arguments))
    command, quiet = options.pop("command"), options.pop("quiet")
    out = options["out"]
    # A batch system's SIGTERM and a lost terminal's SIGHUP should clean up like Ctrl-C; a signal
    # that is ignored (by nohup) stays so.
    previous = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, handler in previous.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _terminate)
    try:
        if command == "synthetic":
            manifest = prepare_synthetic(**options, progress=not quiet)
        else:
            manifest = prepare(command, **options, progress=not quiet)
    except DataPrepError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OptionError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        print("interrupted; nothing was left behind", file=sys.stderr)
        return 130
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    print(summary(manifest, out))
    return 0
