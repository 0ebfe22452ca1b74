"""Make figures and tables from recorded rows.

python -m figures throughput                one figure, from the committed reference rows
python -m figures all --runs runs/gpu       every figure, your own complete runs beside them
python -m figures table normalized-entropy  the numbers of a figure as a Markdown table
python -m figures collect throughput --runs runs/gpu   your runs become the reference rows
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from figures.collect import collect
from figures.errors import RowsError
from figures.registry import DATA, FIGURES, make

ACTIONS = ("table", "collect")
OUT = Path(__file__).parent
"""Where figures go by default: figures/ of the project, whichever the current directory is."""

_BROKEN_PIPE = 128 + 13
"""What a shell reports of a program whose reader went away (SIGPIPE)."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, or 1 where the rows of a figure are at fault."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    parser = _parser()
    options = parser.parse_args(arguments)
    action = options.figure if options.figure in ACTIONS else "draw"
    if (action == "draw") != (options.of is None):
        parser.error(f"name a figure after {' or '.join(ACTIONS)}, and only there")
    wanted = options.figure if action == "draw" else options.of
    if wanted == "all" and options.rows:
        parser.error("--rows belongs to one figure: name it instead of `all`")
    if action == "collect" and (options.runs is None or options.rows):
        parser.error("collect takes its rows from --runs DIR, and from nowhere else")
    command = ["python", "-m", "figures", *arguments]
    failed = False
    for name in FIGURES if wanted == "all" else (wanted,):
        try:
            if action == "collect":
                print(*collect(FIGURES[name].experiment, options.runs, DATA), sep="\n")
            elif action == "table":
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
    parser.add_argument("figure", choices=[*FIGURES, "all", *ACTIONS], help="what to make")
    parser.add_argument("of", nargs="?", choices=[*FIGURES, "all"], help="after an action: of what")
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
        "--out", type=Path, default=OUT, metavar="DIR", help="default: figures/ of the project"
    )
    return parser


def _program() -> int:
    """Run `main` as a program of a pipeline: end quietly when nobody reads on (`| head`)."""
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:
        # What is left in the buffer has nowhere to go; the interpreter flushes it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    return status


if __name__ == "__main__":
    sys.exit(_program())
