"""Running out of memory: recognise it, and give back what the failure held."""

import gc

import torch


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or one in its chain of causes, says that host or device memory ran out."""
    while error is not None:
        if isinstance(error, torch.OutOfMemoryError | MemoryError):
            return True
        # The CPU allocator raises a plain RuntimeError.
        if isinstance(error, RuntimeError) and "can't allocate memory" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def release_memory() -> None:
    """Free what a failed arm left: reference cycles first, then the CUDA allocator's cache."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
