import json
import os
import re
import socketserver
import threading
from dataclasses import replace
from email.utils import format_datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme
from stage.faults import Files
from stage.tls import secured

from harness.oracle import Signer
from licclient import Trust, Updates, _doctor
from licclient._cli import main
from licclient._core.kinds import InstallationKind
from licclient._core.records import SCHEMA, seal
from licclient._updates.check import NOT_CHECKED
from licclient.errors import LicenseRefusedError
from licclient.install import DetectedInstallation

MISSING = {"error": "validation", "message": "…", "errors": {"license_key": ["…"]}}
CHECK_PERMISSIONS = "check its permissions, or close the program that has it open, and try again"


@pytest.fixture
def well(service, clock, http_answer):
    """A service that answers as one does that is well; `move` puts its clock elsewhere."""

    def reply(request):
        if request.path.endswith("update-check") and not request.query:
            return http_answer(422, MISSING, Date=format_datetime(well.time, usegmt=True))
        return http_answer(200, {"valid": True, "product": "Notes", "expiry": None, "lifetime": True})

    well = service
    well.time = clock.now
    service.script = reply
    return service


def _lines(report):
    found = re.findall(r"^(ok|!!|  ) ([a-z ]+): +(.*)$", report, re.MULTILINE)
    return {name: (mark.strip(), words) for mark, name, words in found}


async def test_a_customer_for_whom_all_is_well(client, well, key):
    """Every check is there, nothing is wrong, and the key shows its end only."""
    await client.activate(key)
    report = await client.diagnose()
    lines = _lines(report)
    assert list(lines) == [
        "server", "program", "name", "proxy", "tls", "service", "clock", "state folder", "state files",
        "keyring", "installation", "installed", "platform", "label", "license", "product", "updates",
        "license file", "pinned keys",
    ]  # fmt: skip
    assert report.endswith("Nothing wrong was found.")
    assert lines["service"] == ("ok", "responds")
    assert lines["clock"] == ("ok", "agrees with the server's")
    assert lines["license"][0] == "ok"
    assert f"key {key[:5]}…{key[-4:]}; Notes, lifetime" in lines["license"][1], (
        "as the server's console shows it"
    )
    assert lines["installation"][1] == well.requests[0].json["domain"]
    assert re.fullmatch(
        r"[a-z -]+(, as far as can be seen)?, in .*, which can(not)? be written.*", lines["installed"][1]
    )
    assert lines["label"] == ("", "none is sent")
    assert key not in report
    assert well.requests[-1].query == {}, "a diagnosis asks nothing about the key"


async def test_the_command_of_an_update_does_not_name_the_user(client, monkeypatch):
    """A virtual environment is mostly in the home folder, and the report goes to support."""
    python = Path.home() / "env" / "bin" / "python"
    found = _doctor.detection.detect()
    found = replace(found, updater="pip", command=f"{python} -m pip install -U photo-lab")
    monkeypatch.setattr(_doctor.detection, "detect", lambda: found)
    shown = _lines(await client.diagnose())["installed"][1]
    assert shown.endswith(
        "; updated by pip: ~/env/bin/python -m pip install -U photo-lab".replace("/", os.sep)
    )


async def test_a_copy_that_cannot_update_itself(client, well, key, monkeypatch, tmp_path):
    """Such as the zip of a folder that a person has unpacked; an app that has no updates does not care."""
    await client.activate(key)
    monkeypatch.setattr("sys.frozen", True, raising=False)
    place = DetectedInstallation(
        InstallationKind.FOLDER,
        tmp_path,
        tmp_path / "app",
        is_writable=True,
        updater=None,
        command=None,
        is_certain=False,
    )
    monkeypatch.setattr("licclient.install._flow.detect", lambda: place)
    report = await client.diagnose()
    assert _lines(report)["own updates"][0] == "!!"
    assert "this copy cannot update itself" in report
    assert report.endswith("Look at: own updates.")


async def test_the_platform_that_is_sent_is_shown(make_client, well):
    """Support sees which file of a version a computer gets (D-187)."""
    for platform, shown in [("linux-arm64", "linux-arm64"), (None, "none is sent")]:
        client = make_client(updates=Updates(platform=platform))
        assert _lines(await client.diagnose())["platform"] == ("", shown)


async def test_the_label_that_is_sent_is_shown(make_client, well):
    """A customer sees what the app sends about the computer, without asking its developer."""
    client = make_client(label="Anna's Mac", version="1.4.0")
    assert _lines(await client.diagnose())["label"] == (
        "",
        "sent with each verify: Anna's Mac, version 1.4.0",
    )


async def test_pinned_keys_are_named(make_client, well):
    """By their ids, which support can compare with what the vendor's server has."""
    signer = Signer()
    lines = _lines(
        await make_client(trust=Trust(public_keys=[signer.text], release_keys=[signer.text])).diagnose()
    )
    assert lines["pinned keys"] == ("", f"answers {signer.id}, updates {signer.id}")


@pytest.mark.parametrize(
    ("hours", "words"), [(-2, "2:00:00 ahead of the server's"), (2, "2:00:00 behind the server's")]
)
async def test_a_clock_that_is_wrong(client, well, clock, hours, words):
    """The most common reason that nobody thinks of."""
    well.time = clock.now.replace(hour=clock.now.hour + hours)
    assert _lines(await client.diagnose())["clock"] == ("!!", words)


async def test_something_else_answers(client, service):
    """A hotel's page is named as what it is."""
    service.responds(200, b"<h1>Welcome</h1>")
    report = await client.diagnose()
    assert _lines(report)["service"] == ("!!", "this is not a license service (HTTP status 200)")
    assert report.endswith("Look at: service.")


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_a_service_that_cannot_respond_now(client, service, status):
    """The address is right: nobody has to look for another one."""
    service.responds(status, b"")
    words = f"responds, but not at the moment (HTTP status {status})"
    assert _lines(await client.diagnose())["service"] == ("!!", words)


async def test_nobody_answers(make_client, dead_url):
    """What is out of reach is reported so, and the other checks are made all the same."""
    lines = _lines(await make_client(dead_url).diagnose())
    refused = "The license service could not be reached: the connection was refused."
    assert lines["service"] == ("!!", refused)
    assert lines["clock"] == ("", "could not be compared")
    assert lines["license"] == ("", "not activated; enter the license key in the app")


@pytest.mark.filterwarnings("ignore:base_url is http")
async def test_a_name_that_does_not_exist(make_client):
    """The name is looked up on its own."""
    lines = _lines(await make_client("http://nowhere.invalid").diagnose())
    assert lines["name"][0] == "!!"
    assert lines["name"][1].startswith("nowhere.invalid cannot be resolved")


async def test_a_proxy_is_shown_without_its_password(client, well, monkeypatch):
    """Proxies come from the environment; their passwords stay there."""
    monkeypatch.setenv("http_proxy", "http://me:secret@proxy.invalid:3128")
    monkeypatch.setenv("no_proxy", "example.org")
    report = await client.diagnose()
    assert _lines(report)["proxy"] == ("", "proxy.invalid:3128 (with a password)")
    assert "secret" not in report


async def test_a_refused_license_says_why(client, service, well, key):
    """The server's last word is in the report."""
    await client.activate(key)
    script = service.script
    service.refuses(403, "License has been revoked.")
    with pytest.raises(Exception, match="revoked"):
        await client.verify(force=True)
    service.script = script
    mark, words = _lines(await client.diagnose())["license"]
    assert mark == "!!"
    assert words.startswith("refused; key CP-AB…O345")
    assert words.endswith("last response: License has been revoked.")


async def test_without_the_product_its_license_is_named(make_client, well, key, tmp_path, monkeypatch):
    """A person who leaves `--product` out is not misled: the app's own state is in a folder below."""
    monkeypatch.setattr("platformdirs.user_state_path", lambda *_, **__: tmp_path / "all")
    await make_client(product="Notes", storage=None).activate(key)
    with pytest.raises(LicenseRefusedError):  # of a product that was mistyped
        await make_client(product="Note", storage=None).verify(key)
    notes = make_client(product="Notes", storage=None)
    assert _lines(await notes.diagnose())["license"][0] == "ok"
    no_product = make_client(slug=None, storage=None)
    assert _lines(await no_product.diagnose())["license"] == (
        "",
        "not activated; pass the product to check one of these: notes",
    )


async def test_a_check_that_breaks_hides_no_other(client, well, monkeypatch):
    """A bug in one check costs one line."""
    monkeypatch.setattr(_doctor, "_check_proxy", lambda _: 1 / 0)
    lines = _lines(await client.diagnose())
    assert lines["proxy"] == ("!!", "the check itself failed (ZeroDivisionError)")
    assert lines["license"] == ("", "not activated; enter the license key in the app")


@pytest.mark.usefixtures("verdicts")
async def test_a_certificate_that_nobody_signed(make_client, tls):
    """The report says why TLS does not trust it."""
    tls.context = secured(trustme.CA().issue_cert("127.0.0.1"))
    mark, words = _lines(await make_client(f"https://127.0.0.1:{tls.port}").diagnose())["tls"]
    assert mark == "!!"
    assert words.startswith("the certificate is not trusted: ")


async def test_a_service_without_tls(make_client):
    """A mistyped https ends in the words of OpenSSL, which nobody but a developer of it reads."""

    class Plain(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Plain) as plain:
        threading.Thread(target=plain.serve_forever).start()
        port = plain.server_address[1]
        try:
            words = _lines(await make_client(f"https://127.0.0.1:{port}").diagnose())["tls"][1]
        finally:
            plain.shutdown()
    assert words.endswith("; the port answers without TLS: is the address http?")


def test_on_the_command_line(well, tmp_path, capsys, key):
    """`licclient doctor` prints the report, or JSON; its exit status shows whether all is well."""
    argv = ["--server", well.url, "--state-dir", str(tmp_path), "doctor", "--product", "Notes"]
    well.time = __import__("datetime").datetime.now(well.time.tzinfo)
    assert main(argv) == 0
    assert "Nothing wrong was found." in capsys.readouterr().out
    well.responds(500)
    assert main([*argv, "--json"]) == 1
    found = {finding["name"]: finding for finding in json.loads(capsys.readouterr().out)["findings"]}
    assert found["service"] == {
        "name": "service",
        "ok": False,
        "message": "this is not a license service (HTTP status 500)",
    }
    assert found["name"]["message"].startswith(urlsplit(well.url).hostname)


def test_the_last_check_for_an_update_on_the_command_line(well, tmp_path, capsys):
    """With slug and version, as an app passes them; what is missing is named."""
    argv = ["--server", well.url, "--state-dir", str(tmp_path), "doctor"]
    for more, expected in (
        ([], "not checked: the app passes no slug and no version"),
        (["--slug", "notes"], "not checked: the app passes no version"),
        (["--slug", "notes", "--version", "1.0"], NOT_CHECKED.message),
    ):
        main([*argv, *more])
        assert _lines(capsys.readouterr().out)["updates"] == ("", expected)


async def test_what_is_wrong_several_times_is_named_once(make_client, well, key, tmp_path):
    """The last line lists the checks; each damaged file has a line of its own."""
    await make_client(storage=tmp_path).activate(key)
    paths = list(tmp_path.glob("*.state"))
    for path in paths:
        path.write_bytes(b"")
    report = await make_client(storage=tmp_path).diagnose()
    assert report.count("!! state files:") == len(paths) > 1
    assert report.splitlines()[-1].count("state files") == 1


@pytest.mark.parametrize(
    ("kind", "todo"),
    [
        ("activation", "enter the license key again"),
        ("license", "connect to the internet and check the license again"),
        ("installation", "nothing to do: there is a copy"),
        ("call", "nothing to do: the next request writes it anew"),
    ],
)
async def test_a_damaged_file_is_named_with_what_to_do(make_client, well, key, tmp_path, kind, todo):
    """To a call it is a missing one; a report that calls all well would send a customer away."""
    await make_client(storage=tmp_path).activate(key)
    [path] = tmp_path.glob(f"{kind}-*.state")
    path.write_bytes(path.read_bytes()[:-20])
    report = await make_client(storage=tmp_path).diagnose()
    mark, words = _lines(report)["state files"]
    assert mark == "!!"
    assert words == f"{path} is damaged, and counts as missing: {todo}"
    assert report.splitlines()[-1].startswith("Look at: state files")


async def test_a_file_of_a_later_version_is_not_called_damaged(make_client, well, key, tmp_path):
    """It is good, and a version of the app that reads it is the way out."""
    await make_client(storage=tmp_path).activate(key)
    [path] = tmp_path.glob("license-*.state")
    path.write_bytes(seal(path.stem, {"schema": SCHEMA + 1}))
    _, words = _lines(await make_client(storage=tmp_path).diagnose())["state files"]
    assert words.startswith(f"{path} was written by a later version of this app, and counts as missing: ")


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="Windows follows links, which few may make there")
async def test_a_link_in_a_files_place_is_reported(make_client, well, key, tmp_path):
    """It is not followed, so it counts as missing."""
    await make_client(storage=tmp_path).activate(key)
    [path] = tmp_path.glob("activation-*.state")
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    _, words = _lines(await make_client(storage=tmp_path).diagnose())["state files"]
    assert words == f"{path} is not a plain file, and counts as missing: enter the license key again"


async def test_an_unreadable_file_is_not_called_missing(make_client, well, key, tmp_path, monkeypatch):
    """Nothing is lost, and nothing is entered again."""
    await make_client(storage=tmp_path).activate(key)
    client = make_client(storage=tmp_path)
    [path] = tmp_path.glob("activation-*.state")
    Files(monkeypatch, tmp_path).fail(lambda _, name: name == str(path), "EACCES")
    lines = _lines(await client.diagnose())
    assert lines["state files"] == (
        "!!",
        f"{path} cannot be read (Permission denied), and is left as it is: {CHECK_PERMISSIONS}",
    )
    mark, words = lines["license"]
    assert mark == "!!"
    assert "cannot be read (Permission denied" in words
    assert "not activated" not in words
    assert "last response" not in words, "no server said so"


async def test_a_folder_that_cannot_be_listed(make_client, well, key, tmp_path, monkeypatch):
    """Its files are neither missing nor damaged."""
    await make_client(storage=tmp_path).activate(key)
    client = make_client(storage=tmp_path)
    Files(monkeypatch, tmp_path).fail(lambda _, name: name == str(tmp_path), "EIO")
    _, words = _lines(await client.diagnose())["state files"]
    assert (
        words == f"{tmp_path} cannot be read (Input/output error), and is left as it is: {CHECK_PERMISSIONS}"
    )


async def test_nothing_stored_yet_is_nothing_wrong(make_client, well, tmp_path):
    """Absent is neither damaged nor unreadable: the next step is to enter a key."""
    lines = _lines(await make_client(storage=tmp_path / "new").diagnose())
    assert "state files" not in lines
    assert lines["license"] == ("", "not activated; enter the license key in the app")


async def test_the_files_that_apps_share_are_looked_at(make_client, well, key, tmp_path, monkeypatch):
    """The id of the installation lies in the vendor's folder, above the app's."""
    monkeypatch.setattr("platformdirs.user_state_path", lambda *_, **__: tmp_path / "all")
    await make_client(product="Notes", storage=None).activate(key)
    [path] = (tmp_path / "all").glob("*/installation-*.state")
    path.write_bytes(b"")
    _, words = _lines(await make_client(product="Notes", storage=None).diagnose())["state files"]
    assert words == f"{path} is damaged, and counts as missing: nothing to do: there is a copy"


async def test_a_mistyped_slug_is_in_the_report(make_client, well, key, tmp_path, http_answer):
    """The last update check says so; without a key the service says nothing about products."""
    client = make_client(storage=tmp_path, slug="ntoes", version="1.0")
    await client.activate(key)
    assert _lines(await client.diagnose())["updates"] == ("", "No update check has been made yet.")
    script = well.script
    well.responds(404, {"error": "product_not_found", "message": "There is no product with this slug."})
    await client.check_for_update()
    well.script = script
    mark, words = _lines(await client.diagnose())["updates"]
    assert mark == "!!"
    assert words.endswith("refused: There is no product with this slug. The slug of this app is 'ntoes'.")


@pytest.mark.parametrize(
    ("product", "mark"), [("Notes Pro", "!!"), ("Paint", "")], ids=["a nearly right name", "another product"]
)
async def test_a_key_that_was_refused_for_its_product(make_client, well, key, tmp_path, product, mark):
    """The key is not remembered, but its product is: support reads it beside the app's."""
    client = make_client(storage=tmp_path, product=product)
    assert _lines(await client.diagnose())["product"] == ("", product)
    with pytest.raises(LicenseRefusedError):
        await client.activate(key)
    found, words = _lines(await client.diagnose())["product"]
    assert found == mark
    assert words.startswith(f"{product}; a key was entered for Notes, which is refused")
