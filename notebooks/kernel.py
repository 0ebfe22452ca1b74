"""A papermill engine whose kernels speak over local sockets and whose failed starts are retried."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

from nbclient.exceptions import DeadKernelError
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, papermill_engines
from traitlets.config import Config

ENGINE = "erase"
START_ATTEMPTS = 3
START_TIMEOUT_S = 60
_SIGKILL = -9


class KernelKilledError(DeadKernelError):
    """The kernel was ended by SIGKILL: nearly always the host's memory ran out."""


class Client(PapermillNotebookClient):
    """Runs one notebook. Only the start of the kernel is ever repeated, never a cell."""

    def start_new_kernel(self, **kwargs: Any) -> None:
        """Start the kernel's process."""
        self._start_options = kwargs
        super().start_new_kernel(**kwargs)

    def start_new_kernel_client(self) -> Any:
        """Connect to the kernel; where it does not answer, start another."""
        for _ in range(START_ATTEMPTS - 1):
            try:
                return super().start_new_kernel_client()
            except RuntimeError as error:  # died, or no answer in time: nbclient has cleaned up
                self.log.warning("The kernel did not start (%s); trying again", error)
                self.km = self.create_kernel_manager()
                self.start_new_kernel(**self._start_options)
        return super().start_new_kernel_client()

    def execute(self, **kwargs: Any) -> Any:
        """Run all cells; tell a killed kernel from one that failed by itself."""
        try:
            return super().execute(**kwargs)
        except DeadKernelError as error:
            if self._exit_status == _SIGKILL:
                raise KernelKilledError("the kernel was killed, as when memory runs out") from error
            raise

    def _cleanup_kernel(self) -> None:
        process = getattr(getattr(self.km, "provisioner", None), "process", None)
        self._exit_status = process.poll() if process is not None else None
        super()._cleanup_kernel()


class LocalEngine(NBClientEngine):
    """papermill's own engine with the client above."""

    @classmethod
    def execute_managed_notebook(
        cls, nb_man: Any, kernel_name: str, execution_timeout: int | None = None, **kwargs: Any
    ) -> Any:
        """Run the notebook with a kernel whose sockets are files in a directory of its own.

        TCP ports can clash between kernels that start at once, and ipykernel warns about them.
        """
        # Not TMPDIR: a Unix socket's path may not be longer than 107 bytes.
        sockets = Path(tempfile.mkdtemp(prefix="erase-", dir="/tmp"))
        manager = {"transport": "ipc", "connection_file": str(sockets / "kernel.json")}
        try:
            return Client(
                nb_man,
                kernel_name=kernel_name,
                startup_timeout=START_TIMEOUT_S,
                timeout=execution_timeout,
                log_output=kwargs["log_output"],
                config=Config({"KernelManager": manager}),
            ).execute()
        finally:
            shutil.rmtree(sockets, ignore_errors=True)


papermill_engines.register(ENGINE, LocalEngine)
