"""Make figures and tables from recorded rows.

python -m figures throughput                one figure, from the committed reference rows
python -m figures all --runs runs/gpu       every figure, your own complete runs beside them
python -m figures table normalized-entropy  the numbers of a figure as a Markdown table
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from figures.errors import RowsError
from figures.registry import FIGURES, make


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, or 1 where the rows of a figure are at fault."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    parser = _parser()
    options = parser.parse_args(arguments)
    as_table = options.figure == "table"
    if as_table != (options.of is not None):
        parser.error("name a figure after `table`, and only there")
    wanted = options.of if as_table else options.figure
    if wanted == "all" and options.rows:
        parser.error("--rows belongs to one figure: name it instead of `all`")
    command = ["python", "-m", "figures", *map(shlex.quote, arguments)]
    failed = False
    for name in FIGURES if wanted == "all" else (wanted,):
        try:
            if as_table:
                print(FIGURES[name].table(FIGURES[name].rows(options.rows, options.runs)))
            else:
                for path in make(name, options.out, options.rows, options.runs, command):
                    print(path)
        except RowsError as error:
            print(f"error: {name}: {error}", file=sys.stderr)
            failed = True
    return int(failed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m figures",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("figure", choices=[*FIGURES, "all", "table"], help="what to make")
    parser.add_argument("of", nargs="?", choices=[*FIGURES, "all"], help="after `table`: of what")
    parser.add_argument(
        "--rows",
        type=Path,
        nargs="+",
        default=[],
        metavar="CSV",
        help="rows to draw instead of the reference rows in figures/data",
    )
    parser.add_argument("--runs", type=Path, metavar="DIR", help="draw complete runs under DIR too")
    parser.add_argument(
        "--out", type=Path, default=Path("figures"), metavar="DIR", help="default: figures/"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
