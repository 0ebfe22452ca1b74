"""Write a figure in three formats with a sidecar that says what it shows and where it comes from.

The same rows give the same bytes: no dates, fixed identifiers in SVG, fonts that matplotlib ships.
"""

import hashlib
import io
import json
import platform
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from matplotlib.figure import Figure

from erase_core.bench.records import write_atomically
from figures.citation import BIBTEX
from figures.rows import Rows
from figures.style import dataset_kind

_PACKAGES = ("matplotlib", "seaborn", "pandas", "numpy")
_UNDATED: dict[str, dict[str, None]] = {
    "pdf": {"CreationDate": None, "ModDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
}


def save(
    figure: Figure, name: str, caption: str, rows: Rows, command: Sequence[str], out: Path
) -> list[Path]:
    """Write NAME.pdf, NAME.svg, NAME.png and NAME.json into a directory; return their paths.

    All are rendered before the first is written, and each is renamed into place, so that a failure
    leaves the old figure whole.
    """
    contents = {suffix: _render(figure, suffix) for suffix in _UNDATED}
    kinds = sorted({dataset_kind(dataset) for dataset in rows.frame["dataset"]})
    sidecar = {
        "figure": name,
        "caption": caption,
        "data": kinds,
        "command": shlex.join(command),
        "rows": [asdict(source) for source in rows.sources],
        "skipped_runs": dict(rows.skipped),
        "commits": sorted(set(rows.frame["commit"])),
        "devices": sorted(set(rows.frame["device"])),
        "torch": sorted(set(rows.frame["torch"])),
        "versions": {"python": platform.python_version()} | {p: version(p) for p in _PACKAGES},
        "bibtex": BIBTEX,
        "sha256": {
            f"{name}.{suffix}": hashlib.sha256(content).hexdigest()
            for suffix, content in contents.items()
        },
    }
    text = json.dumps(sidecar, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for suffix, content in {**contents, "json": text.encode()}.items():
        path = out / f"{name}.{suffix}"
        write_atomically(path, content)
        paths.append(path)
    return paths


def _render(figure: Figure, suffix: str) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=suffix, metadata=_UNDATED[suffix])
    return buffer.getvalue()
