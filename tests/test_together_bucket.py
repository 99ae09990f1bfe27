"""The real client, the real server and a bucket between them (D-34)."""

from collections.abc import Callable, Iterator
from pathlib import Path

import obstore
import pytest

from harness.bucket import S3Server
from harness.shop import Open
from harness.sockets import Cable
from harness.world import Server, World
from licclient import LicenseClient, Update
from licclient.errors import ServiceUnavailableError
from licserver.artifacts.bucket import ArtifactBucket

SLUG = "photo-lab"
SIZE = 4 << 20


@pytest.fixture
def cable(s3: S3Server) -> Iterator[Cable]:
    """What leads to the bucket; it can be cut."""
    with Cable(s3.port).plugged() as cable:
        yield cable


@pytest.fixture(params=[True, False], ids=["redirect", "stream"])
def world(
    request: pytest.FixtureRequest,
    make_world: Callable[..., World],
    s3: S3Server,
    cable: Cable,
    monkeypatch: pytest.MonkeyPatch,
) -> World:
    """A vendor whose files are in a bucket, with one version published."""
    for name, value in {**s3.environ, "AWS_ENDPOINT_URL": cable.url}.items():
        monkeypatch.setenv(name, value)
    world = make_world(artifacts_url=s3.new_bucket(), artifacts_redirect=request.param, patch_limit=SIZE)
    release = {"version": "1.1.0", "published_at": "2026-11-05T08:30:00Z", "size": SIZE}
    product = {"slug": SLUG, "name": "Photo Lab", "environment": "domain", "support_policy": False}
    world.stock({"products": [{**product, "releases": [release]}], "licenses": []})
    return world


@pytest.fixture
def server(world: World) -> Iterator[Server]:
    """The vendor's server, running."""
    with world.serving() as server:
        yield server


@pytest.fixture
def client(open_client: Open) -> LicenseClient:
    """An app's client."""
    return open_client()


@pytest.fixture
def update(world: World, client: LicenseClient) -> Update:
    """The offer of the new version."""
    update = client.check_for_update(world.new_key(SLUG)).update
    assert update is not None
    return update


def _status(world: World) -> int:
    return 307 if world.services.settings.artifacts_redirect else 200


def _bucket(world: World) -> tuple[ArtifactBucket, str]:
    """The bucket, and the key of the only object in it."""
    bucket = world.services.artifacts
    assert isinstance(bucket, ArtifactBucket)
    ((found,),) = obstore.list(bucket._writer)
    return bucket, found["path"]


def test_a_cable_to_the_bucket_cut_half_way(
    world: World, server: Server, cable: Cable, client: LicenseClient, update: Update, tmp_path: Path
) -> None:
    """The download goes on where it stopped, and the file is the vendor's to the last byte."""
    cable.cut_after = [SIZE // 8]  # a piece is twice as long
    path = client.download(update, tmp_path / "downloads").path
    assert path.name == f"{SLUG}-1.1.0.zip"
    assert path.read_bytes() == world.files["1.1.0"]
    assert cable.cuts == 1
    if _status(world) == 307:  # streamed, the server itself asks the bucket again, and nobody notices
        whole, rest = server.ranges
        assert whole is None
        assert rest is not None
        assert 0 < int(rest.removeprefix("bytes=").removesuffix("-")) < SIZE


@pytest.mark.slow  # the client waits the five seconds of Retry-After
def test_a_file_that_is_lost(
    world: World, server: Server, client: LicenseClient, update: Update, tmp_path: Path
) -> None:
    """The customer's app gets an outage; when the file is back, it gets it."""
    bucket, key = _bucket(world)
    obstore.delete(bucket._writer, key)
    with pytest.raises(ServiceUnavailableError):
        client.download(update, tmp_path)
    assert set(server.downloads) == {503}
    obstore.put(bucket._writer, key, world.files["1.1.0"])
    assert client.download(update, tmp_path).path.read_bytes() == world.files["1.1.0"]


@pytest.mark.slow
def test_a_patch_comes_from_the_bucket(
    world: World, server: Server, client: LicenseClient, update: Update, tmp_path: Path
) -> None:
    """By redirect or streamed: what the bucket has is a patch, and the file is the vendor's."""
    client.download(update, tmp_path)
    content = world.publish(SLUG, "1.2.0", "2026-11-20T12:00:00Z", size=SIZE)
    world.services.patches.make(SLUG, "1.2.0")
    following = client.check_for_update(world.new_key(SLUG), force=True).update
    assert following is not None
    totals: list[int] = []
    done = client.download(following, tmp_path, progress=lambda _, total, __: totals.append(total))
    assert done.path.read_bytes() == content
    assert totals[0] < SIZE / 2
    assert server.downloads[-1] == _status(world)
