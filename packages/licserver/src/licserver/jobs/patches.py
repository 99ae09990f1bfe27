"""Makes patches in the background."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping
from datetime import timedelta
from multiprocessing import get_context, parent_process
from typing import Any, Final

from licserver.database.repositories.queue import Job
from licserver.errors import LicserverError
from licserver.jobs.worker import JobWorker
from licserver.runtime.logging import set_up_logging
from licserver.services.installation import Services, open_services
from licserver.services.releases import PATCHES
from licserver.settings import Settings

LEASE: Final = timedelta(minutes=15)  # three patches of the largest files from a slow bucket
_NICENESS: Final = 10
_log = logging.getLogger("licserver.patches")


class PatchesFailedError(LicserverError):
    """The process that makes patches has failed; it has logged the reason."""


def register_patches(worker: JobWorker, services: Services) -> None:
    """Register the queue of new releases, whose patches are made a release at a time.

    Patches need three times a file's memory. They are made in a separate process: if the system runs out of
    memory, it kills that process, and the server keeps running. A product's first release starts no process.
    """

    async def make(job: Job) -> None:
        if not await asyncio.to_thread(services.patches.list_missing, **job.payload):
            return
        process = get_context("spawn").Process(
            target=_make_patches, args=(services.settings, job.payload), name="patches", daemon=True
        )
        await asyncio.to_thread(process.start)
        try:
            await asyncio.to_thread(process.join)
        finally:
            process.kill()  # the server stops, or the lease has ended
        if process.exitcode:
            raise PatchesFailedError(f"the process that makes patches exited with {process.exitcode}")

    worker.register(PATCHES, make, lease=LEASE, at_once=1)


def end_with_parent() -> None:
    """End this process when its parent process has ended, also if the parent was killed."""

    def wait() -> None:
        if (parent := parent_process()) is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _make_patches(settings: Settings, release: Mapping[str, Any]) -> None:
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends this process
    with contextlib.suppress(AttributeError, OSError):  # Windows has no nice
        os.nice(_NICENESS)
    set_up_logging(settings.log_format)
    try:
        with contextlib.closing(open_services(settings)) as services:
            services.patches.make(**release)
    except LicserverError as problem:
        _log.error("no patches of %s %s: %s", release["slug"], release["version"], problem)
        sys.exit(1)
