"""State which code, which software and which device a measurement was made with."""

import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

UNKNOWN = "unknown"
PACKAGES = ("torch", "numpy", "pandas", "pyarrow", "datasets", "papermill", "matplotlib", "seaborn")
_DIRTY = "-dirty"


def commit() -> tuple[str, bool | None]:
    """Return the commit of the running `erase_core` and whether its files differ from it.

    `ERASE_COMMIT` in the environment, where set, is taken as stated (with "-dirty" at its end for
    changed files): a copy without .git cannot know it. Otherwise git is asked, and answers only if
    it tracks this very file, for a copy installed inside someone else's repository is not theirs.
    ("unknown", None) if neither can tell.
    """
    stated = os.environ.get("ERASE_COMMIT", "").strip()
    if stated:
        return stated.removesuffix(_DIRTY), stated.endswith(_DIRTY)
    here = Path(__file__).resolve()
    if _run(["git", "-C", here.parent, "ls-files", "--error-unmatch", here.name]) is None:
        return UNKNOWN, None
    head = _run(["git", "-C", here.parent, "rev-parse", "HEAD"])
    changes = _run(["git", "-C", here.parent, "status", "--porcelain", "--untracked-files=no"])
    return (head or UNKNOWN), (None if changes is None else bool(changes))


def commit_label() -> str:
    """Return `commit()` as one word for a column of rows: twelve digits, "-dirty" if changed."""
    name, dirty = commit()
    return name[:12] + (_DIRTY if dirty else "")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that are installed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    # The wheel's metadata leave out the build; torch itself says "+cpu" or "+cu130".
    found["torch"] = str(torch.__version__)
    return found


def device_name(device: torch.device | str) -> str:
    """Return a name for tables and labels, such as "NVIDIA H200" or "CPU (x86_64, 2 threads)"."""
    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "cpu":
        threads = torch.get_num_threads()
        return f"CPU ({platform.machine()}, {threads} thread{'' if threads == 1 else 's'})"
    return device.type


def describe_device(device: torch.device | str) -> dict[str, object]:
    """Return the device's name and, on CUDA, its memory, driver and power limit where known."""
    device = torch.device(device)
    description: dict[str, object] = {"type": device.type, "name": device_name(device)}
    if device.type != "cuda":
        return description
    properties = torch.cuda.get_device_properties(device)
    description |= {
        "capability": f"{properties.major}.{properties.minor}",
        "memory_bytes": properties.total_memory,
        "cuda": torch.version.cuda,
        "driver": None,
        "power_limit_w": None,
    }
    # By identity, not by index: CUDA_VISIBLE_DEVICES renumbers devices for torch alone.
    identity = f"GPU-{properties.uuid}"
    query = ["nvidia-smi", "-i", identity, "--query-gpu=driver_version,power.limit"]
    answer = _run([*query, "--format=csv,noheader,nounits"])
    if answer is not None and answer.count(",") == 1:
        driver, power = (part.strip() for part in answer.split(","))
        description["driver"] = driver
        description["power_limit_w"] = _number(power)
    return description


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # nvidia-smi prints "[N/A]" where a card does not tell
        return None


def _run(command: Sequence[str | Path]) -> str | None:
    """Return a command's output, or None if it is not installed, fails or hangs."""
    if shutil.which(str(command[0])) is None:
        return None
    try:
        done = subprocess.run(
            [str(part) for part in command], capture_output=True, text=True, timeout=10, check=True
        )
    except (subprocess.SubprocessError, OSError):
        return None
    return done.stdout.strip()
