"""A download endpoint behind an update check, which resumes, cuts and refuses as configured."""

import random

from stage.scripts import digest

CONTENT = random.Random(1).randbytes(300_000)


class Store:
    """The endpoint; a header that is empty is not sent.

    Attributes:
        cuts: After how many bytes each of the next responses breaks off.
        refusals: Status and code of the next responses.
        length: Another Content-Length than the content's; none for a negative one.
        manifest: The signed manifest that the update check carries.
    """

    def __init__(self, service, answer) -> None:
        self.service, self.answer = service, answer
        self.content, self.etag, self.digest = CONTENT, '"v2"', digest(CONTENT)
        self.disposition = 'attachment; filename="notes-2.0.zip"'
        self.version, self.manifest = "2.0", ""
        self.length: int | None = None
        self.cuts: list[int] = []
        self.refusals: list[tuple[int, str]] = []
        self.ranges = True
        self.link = f"{service.url}/api/v1/update-download?id=7&sig=SECRETSIG"
        service.script = self.reply

    def reply(self, request):
        """Answer update checks and downloads."""
        if request.path.endswith("update-check"):
            listing = self.service.listing(self.version, download_url=self.link)
            return self.answer(200, listing, Release_Manifest=self.manifest)
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
        if self.length is not None:
            headers["Content_Length"] = str(self.length) if self.length >= 0 else ""
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
    def requested_ranges(self):
        """What was asked of the download endpoint: the Range of each request."""
        return [
            request.headers.get("range") for request in self.service.requests if "download" in request.path
        ]

    @property
    def checks(self):
        """Return how many update checks there were."""
        return self.service.count("update-check")
