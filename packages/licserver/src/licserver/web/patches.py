"""Makes patches in the background, and finds the one that a download asks for."""

import asyncio
import logging
from datetime import timedelta
from typing import Final

from aiohttp import web

from licserver.artifacts import Source
from licserver.database.repositories.queue import Job
from licserver.domain.records import Release
from licserver.errors import ArtifactsError
from licserver.protocol.patches import read_base
from licserver.services import Services
from licserver.services.products import PATCHES
from licserver.web.background import BackgroundWorker

LEASE: Final = timedelta(minutes=15)  # three patches of the largest files from a slow bucket
_log = logging.getLogger("licserver.web")


def register_patches(background: BackgroundWorker, services: Services) -> None:
    """Let a process make the patches of new releases, those of one release at a time: they take memory."""

    def make(job: Job) -> None:
        services.patches.make(**job.payload)

    background.register(PATCHES, make, lease=LEASE, at_once=1)


class FileFinder:
    """Finds what to send to a download."""

    def __init__(self, services: Services) -> None:
        self._patches, self._artifacts = services.repositories.patches, services.artifacts

    async def find(self, request: web.Request, release: Release) -> tuple[Release, Source]:
        """Return a release and how to send its file; with a patch in place of the file if one was asked for.

        Raises:
            ArtifactsError: The file is not there.
        """
        base = read_base(request.headers) if request.method == "GET" else None
        patch = base and (await asyncio.to_thread(self._patches.list_all, release)).get(base)
        if patch:
            try:
                source = await self._artifacts.find(patch, request.method)
                return release._replace(artifact=patch), source
            except ArtifactsError as problem:
                _log.error("a whole file is sent in place of a patch: %s", problem)
        return release, await self._artifacts.find(release.artifact, request.method)
