import pytest
from stage.scripts import digest
from stage.store import CONTENT

from licclient import UntrustedAnswer


async def test_a_store_elsewhere_may_be_redirected_to(client, store, service, http_answer, folder, key):
    """A download follows a few redirects; the endpoints themselves never do."""
    plain = store.reply
    service.script = lambda request: (
        http_answer(302, b"", Location="/bucket/file?signature=X")
        if request.path.endswith("update-download")
        else plain(request)
    )
    assert (await client.download(await client.check_for_update(key), folder)).path.read_bytes() == CONTENT


def sends_elsewhere(store, http_answer, **promised: str):
    """Script a service that redirects, and a bucket that tells nothing but its own name, length and tag."""
    plain = store.reply

    def script(request):
        if request.path.endswith("update-download"):
            return http_answer(307, b"", Location="/bucket/file?signature=X", **promised)
        if request.path == "/bucket/file":
            return http_answer(200, store.content, ETag='"bucket"', Content_Disposition="filename=object-7")
        return plain(request)

    return script


async def test_what_the_service_promises_of_a_file_holds_elsewhere(
    client, store, service, http_answer, folder, key
):
    """Digest and name in the redirect go before what the other place says (D-34)."""
    promised = {"Repr_Digest": digest(CONTENT), "Content_Disposition": 'attachment; filename="from-us.zip"'}
    service.script = sends_elsewhere(store, http_answer, **promised)
    path = (await client.download(await client.check_for_update(key), folder)).path
    assert (path.name, path.read_bytes()) == ("from-us.zip", CONTENT)


async def test_another_file_than_promised_is_refused(client, store, service, http_answer, folder, key):
    """A bucket with other bytes in it is an attack, though all that it says is consistent."""
    store.content = CONTENT[:-1] + b"!"
    service.script = sends_elsewhere(store, http_answer, Repr_Digest=digest(CONTENT))
    with pytest.raises(UntrustedAnswer):
        await client.download(await client.check_for_update(key), folder)
    assert [path for path in folder.iterdir() if path.suffix == ".part"] == []
