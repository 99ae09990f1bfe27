"""A download endpoint behind an update check, which resumes, cuts and refuses as it is told."""

import random

from stage.scripts import digest

CONTENT = random.Random(1).randbytes(300_000)


class Store:
    """A download endpoint that resumes, cuts and refuses as told, behind an update check that offers 2.0."""

    def __init__(self, service, answer) -> None:
        self.service, self.answer = service, answer
        self.content, self.etag, self.digest = CONTENT, '"v2"', digest(CONTENT)
        self.disposition = 'attachment; filename="notes-2.0.zip"'
        self.cuts: list[int] = []
        self.refusals: list[tuple[int, str]] = []
        self.ranges = True
        self.link = f"{service.url}/api/v1/update-download?id=7&sig=SECRETSIG"
        service.script = self.reply

    def reply(self, request):
        """Answer update checks and downloads."""
        if request.path.endswith("update-check"):
            return self.answer(200, self.service.listing("2.0", download_url=self.link))
        if self.refusals:
            status, code = self.refusals.pop(0)
            return self.answer(status, {"error": code, "message": f"It is {code}."})
        return self.file(request)

    def file(self, request):
        """Hand out the file, or the rest of it, or as much as the next cut leaves."""
        first, status, headers = 0, 200, {}
        wanted = request.headers.get("range")
        if self.ranges and wanted and request.headers.get("if-range") == self.etag:
            first, status = int(wanted.removeprefix("bytes=").removesuffix("-")), 206
            headers["Content_Range"] = f"bytes {first}-{len(self.content) - 1}/{len(self.content)}"
        raw = self.answer(
            status,
            self.content[first:],
            Content_Type="application/zip",
            ETag=self.etag,
            Repr_Digest=self.digest,
            Content_Disposition=self.disposition,
            **headers,
        )
        if not self.cuts:
            return raw
        head = len(raw) - len(self.content[first:])
        return raw[: head + self.cuts.pop(0)]

    @property
    def asked(self):
        """What was asked of the download endpoint: the Range of each request."""
        return [
            request.headers.get("range") for request in self.service.requests if "download" in request.path
        ]

    @property
    def checks(self):
        """Return how many update checks there were."""
        return self.service.count("update-check")
