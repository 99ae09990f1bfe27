"""Cases of the download: the link, the file on the disk, and what must not get there."""

from licconform.cases import expect
from licconform.client.service import FILE, KEY, LINK_QUERY, Reply, error, file_reply
from licconform.client.subject import CASES, YES, Client
from licconform.client.verify_cases import PAGE


def expect_nothing(client: Client) -> None:
    """Run a download, which must fail and leave no file."""
    client.never_yes(client.download)
    expect(client.files() == [], "expected no file")


@CASES.case("download-file", "spec 4.2", "The file is on the disk, byte by byte.")
def _(client: Client) -> None:
    client.download(expected=YES)
    expect(client.files() == [FILE], f"expected the file alone, not {[len(f) for f in client.files()]} bytes")


@CASES.case("download-link", "spec 4.3", "The link is used as it is: its query is the service's own matter.")
def _(client: Client) -> None:
    client.download(expected=YES)
    client.fetches.expect_any()
    sent = {request.raw_query for request in client.fetches}
    expect(sent == {LINK_QUERY}, f"expected {LINK_QUERY}, not {sent}")


@CASES.case("download-get", "spec 4.3", "The file is requested by GET.")
def _(client: Client) -> None:
    client.download(expected=YES)
    method = client.fetches.last.method
    expect(method == "GET", f"expected GET, not {method}")


@CASES.case("download-other-path", "spec 4.3", "download_url is taken from the answer, not put together.")
def _(client: Client) -> None:
    client.service.update = client.service.offer(download_url=f"{client.service.base_url}/elsewhere?x=1")
    client.service.elsewhere = file_reply()
    client.download(expected=YES)
    expect(client.files() == [FILE], "expected the file")


@CASES.case("download-without-digest", "spec 4.3", "A file with a length and no other header is accepted.")
def _(client: Client) -> None:
    client.service.file = file_reply(headers={})
    client.download(expected=YES)
    expect(client.files() == [FILE], "expected the file")


@CASES.table(
    "download-no-offer",
    "spec 4.2",
    "Without an offer nothing is downloaded ({0}).",
    [
        ("no-link", None),
        ("revoked", error(401, "invalid_license")),
        ("expired", error(401, "license_expired")),
        ("mismatch", error(403, "product_mismatch")),
        ("page", Reply(200, PAGE)),
    ],
)
def _(client: Client, reply: Reply | None) -> None:
    client.service.update = reply or client.service.offer(download_url=...)
    expect_nothing(client)
    expect(not client.fetches, "expected no request of the file")


@CASES.table(
    "download-refused",
    "spec 5",
    "The response of a refused link is not the file ({0}).",
    [
        ("invalid", error(403, "invalid_link")),
        ("expired", error(403, "link_expired")),
        ("not-found", Reply(404, PAGE)),
        ("500", Reply(500, PAGE)),
    ],
)
def _(client: Client, reply: Reply) -> None:
    client.service.file = reply
    expect_nothing(client)


@CASES.case("download-same-version", "D-47", "The installed version is not downloaded again.")
def _(client: Client) -> None:
    client.never_yes(lambda: client.download("2.0.0"))
    expect(client.files() == [], "expected no file")


@CASES.case("download-no-key", "D-30", "The license key is not sent with the link.")
def _(client: Client) -> None:
    client.download(expected=YES)
    client.fetches.expect_any()
    for request in client.fetches:
        text = f"{request.raw_query} {request.headers} {request.body!r}"
        expect(KEY not in text, "the license key was sent with the link")


@CASES.case("download-fresh-link", "D-48", "After more than an hour, a download begins with a fresh link.")
def _(client: Client) -> None:
    client.check(expected=YES)
    client.later(2)
    client.service.requests.clear()
    client.download(expected=YES)
    expect(client.service.requests.first.path == "/api/v1/update-check", "expected an update check first")


@CASES.case("download-late-link", "D-48", "After an expired link the client requests a fresh one.")
def _(client: Client) -> None:
    client.service.file = [error(403, "link_expired"), file_reply()]
    client.download(expected=YES)
    expect(client.files() == [FILE], "expected the file")


@CASES.case("download-resumed", "D-32", "A download that broke is resumed, or begun again.")
def _(client: Client) -> None:
    client.service.file = [file_reply(cut=True), file_reply()]
    client.download(expected=YES)
    expect(client.files() == [FILE], "expected the whole file")


@CASES.case("download-cut", "spec 4.2", "Half a file is not a success.")
def _(client: Client) -> None:
    client.service.file = file_reply(cut=True)
    client.never_yes(client.download)


@CASES.table(
    "download-name",
    "D-32",
    "A file's name leads nowhere else ({0}).",
    [("parent", "../../evil.zip"), ("absolute", "{0}/evil.zip"), ("backslash", "..\\evil.zip")],
)
def _(client: Client, name: str) -> None:
    disposition = f'attachment; filename="{name.format(client.folder)}"'
    client.service.file = file_reply(headers={**file_reply().headers, "Content-Disposition": disposition})
    client.download()
    outside = {path for path in client.folder.parent.rglob("*.zip") if client.downloads not in path.parents}
    expect(not outside, "written outside the folder of downloads")


@CASES.case("download-digest", "extension D-32", "A file that is not that of its Repr-Digest is not kept.")
def _(client: Client) -> None:
    client.service.file = file_reply(headers=file_reply(b"another file").headers)
    expect_nothing(client)


@CASES.case("download-redirect", "extension D-34", "A redirect of the link is followed.")
def _(client: Client) -> None:
    moved = {**file_reply().headers, "Location": f"{client.service.base_url}/elsewhere"}
    client.service.file = Reply(307, b"", moved)
    client.service.elsewhere = file_reply()
    client.download(expected=YES)
    expect(client.files() == [FILE], "expected the file")
