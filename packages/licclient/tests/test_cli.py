import io
import json
import os
import platform
import signal
import subprocess
import sys
import time
from hashlib import sha256

import pytest
from stage.archives import app, downloaded
from stage.scripts import digest

from licclient._cli import main
from licclient._core.computer import name_platform
from licclient.install import Installation

try:
    os.stat("missing.zip")  # noqa: PTH116 - for its words, which are Windows' own there
except OSError as problem:
    NO_FILE = problem.strerror
FILE = b"the new version" * 100


@pytest.fixture
def run(service, tmp_path, capsys):
    """Run the command line in this process; returns status, standard output and standard error."""

    def run(*arguments: str, server=None):
        argv = ["--server", server or service.url, "--state-dir", str(tmp_path / "state"), *arguments]
        status = main(argv)
        done = capsys.readouterr()
        for secret in ("SECRETSIG", "CP-"):
            assert secret not in done.out + done.err
        return status, done.out, done.err

    return run


@pytest.fixture
def shop(service, http_answer):
    """A service that grants, offers 2.0 and hands out the file."""

    def reply(request):
        if request.path.endswith("verify"):
            return http_answer(
                200, {"valid": True, "product": "Notes", "expiry": "2999-12-31", "lifetime": False}
            )
        if request.path.endswith("update-check"):
            return http_answer(200, service.listing("2.0"))
        return http_answer(
            200, FILE, Content_Disposition='attachment; filename="notes.zip"', Repr_Digest=digest(FILE)
        )

    service.script = reply
    return service


def test_a_label_is_sent_on_request_only(run, shop, key, monkeypatch):
    """It is personal data: none without the option or the variable."""
    run("verify", key)
    run("verify", key, "--force", "--label", "Anna's Mac")
    monkeypatch.setenv("LICCLIENT_LABEL", "Bob's PC")
    run("verify", key, "--force")
    assert [request.json.get("label") for request in shop.requests] == [None, "Anna's Mac", "Bob's PC"]


def test_verify_prints_product_term_and_source(run, shop, key):
    """First from the server, then from the cache."""
    status, out, _ = run("verify", key)
    assert (status, out) == (
        0,
        "Valid: Notes, valid through 2999-12-31 UTC (confirmed by the server just now).\n",
    )
    status, out, _ = run("verify", key)
    assert status == 0
    assert "(from the cache, checked less than a minute ago)" in out
    status, out, _ = run("verify", key, "--force", "--json")
    document = json.loads(out)
    assert document.pop("checked_at")
    assert document == {
        "valid": True,
        "product": "Notes",
        "expiry": "2999-12-31",
        "lifetime": False,
        "source": "server",
        "authenticated": False,
        "entitlements": {},
        "trial": False,
        "updates_until": None,
    }


def test_verify_prints_what_a_trial_includes(run, service, key):
    """Every type of entitlement, for people and for programs."""
    granted = {"export": True, "sync": False, "projects": 50, "region": "eu"}
    granted["exports"] = {"limit": 100, "per": "month"}
    terms = {"product": "Notes", "expiry": "2999-12-31", "lifetime": False}
    service.responds(200, {"valid": True, **terms, "entitlements": granted, "trial": True})
    status, out, _ = run("verify", key)
    assert (status, out.splitlines()) == (
        0,
        [
            "Valid: Notes, trial, valid through 2999-12-31 UTC (confirmed by the server just now).",
            "It includes: export, sync=false, projects=50, region=eu, exports=100/month.",
        ],
    )
    document = json.loads(run("verify", key, "--json")[1])
    assert (document["entitlements"], document["trial"]) == (granted, True)


def test_a_refusal_is_exit_1(run, service, key):
    """The server's words, and the reason for programs."""
    service.refuses(403, "License has been revoked.")
    assert run("verify", key)[:2] == (1, "Refused: License has been revoked.\n")
    status, out, _ = run("verify", key, "--json")
    assert (status, json.loads(out)) == (
        1,
        {"valid": False, "reason": "revoked", "message": "License has been revoked."},
    )


def test_another_product_is_exit_1(run, shop, key):
    """`--product` compares."""
    status, out, _ = run("verify", key, "--product", "Paint", "--json")
    assert (status, json.loads(out)["reason"]) == (1, "other_product")


@pytest.mark.parametrize("command", [["verify"], ["check"], ["download"]])
def test_no_answer_is_exit_3(run, service, dead_url, key, command, tmp_path):
    """Nobody there, or somebody who talks nonsense: no trustworthy answer."""
    more = {"verify": [], "check": ["notes", "1.0"], "download": ["notes", "1.0", "--to", str(tmp_path)]}[
        command[0]
    ]
    for server in (dead_url, service.url):
        status, out, err = run(*command, key, *more, server=server)
        assert (status, out) == (3, "")
        assert err.startswith("licclient: The license service ")
        options = {"verify": ""}.get(command[0], " --slug notes --version 1.0")
        state = tmp_path / "state"
        doctor = f"licclient --server {server} doctor --state-dir {state}{options}"
        assert err.endswith(f" Run `{doctor}` to find out why.\n")
        assert run(*doctor.split()[3:], server=server)[0] == 1  # as it is pasted
    status, out, _ = run(*command, key, *more, "--json")
    assert (status, json.loads(out)["error"]) == (3, "unavailable")


@pytest.mark.parametrize(
    ("server", "message"),
    [
        ("store.example", "--server 'store.example' has no scheme; type 'https://store.example'"),
        ("localhost:8080", "type 'http://localhost:8080'"),
        ("ftp://x", "http:// or https://"),
        ("https://x?y", "no query"),
    ],
)
def test_a_bad_address_is_exit_2(run, key, server, message):
    """Wrong use is one line, which says what to type."""
    status, out, err = run("verify", key, server=server)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("apply missing.zip --version 1 --sha256 aa --to app", f"missing.zip: {NO_FILE}"),
        (
            "request-file",
            "license files need --public-key: pin the keys that `licserver signing-key public` prints",
        ),
        ("check CP-X notes 1.0 --channel Beta", "channels must be at most 16 names of"),
        ("check CP-X Notes! 1.0", "slug must be the product's slug, not its name"),
    ],
)
def test_an_error_names_what_was_typed(run, command, message):
    """Options instead of arguments in Python, and no numbers of errors."""
    status, out, err = run(*command.split())
    assert (status, out) == (2, "")
    assert err.startswith(f"licclient: {message}")


def test_options_stand_before_or_after_the_command_or_in_the_environment(
    run, shop, key, capsys, tmp_path, monkeypatch
):
    """All three are the same; a key is repaired by every command, and the rest is an error in one line."""
    folder = str(tmp_path / "state")
    assert main(["check", f" «{key.lower().replace('-', '–')}» ", "notes", "1.0", "--json", *(
        "--server", shop.url, "--state-dir", folder
    )]) == 0  # fmt: skip
    assert json.loads(capsys.readouterr().out)["update"]["version"] == "2.0"
    assert shop.requests[-1].query["license_key"] == key
    assert run("--json", "verify", key)[1].startswith("{")
    assert run("--product", "Paint", "--domain", "before", "verify", key)[0] == 1
    assert shop.requests[-1].json["domain"] == "before"
    assert run("--product", "Paint", "verify", key, "--product", "Notes")[0] == 0
    monkeypatch.setenv("LICCLIENT_SERVER", shop.url)
    monkeypatch.setenv("LICCLIENT_STATE_DIR", folder)
    monkeypatch.setenv("LICCLIENT_PRODUCT", "Paint")
    assert main(["verify", key]) == 1
    monkeypatch.setenv("LICCLIENT_PUBLIC_KEYS", "ed25519:no")
    assert main(["verify", key, "--product", "Notes"]) == 2


def test_a_recheck_that_failed_is_not_taken_for_one(run, shop, key):
    """The output names the cache as the source."""
    assert run("verify", key)[0] == 0
    shop.goes_down()
    status, out, _ = run("verify", key, "--force")
    assert status == 0
    assert "(the recheck failed: no response from the server; from the cache, checked less" in out


def test_a_complaint_is_printed_once(run, service, key, tmp_path):
    """What the log says is printed, unless the result says it."""
    service.offers("2.0")
    status, out, err = run("check", key, "notes", "2024 Spring")
    assert (status, err) == (1, "")
    assert "2024 Spring" in out
    service.grants()
    (tmp_path / "state").mkdir(exist_ok=True)
    (tmp_path / "file").write_text("")
    _, _, err = run("verify", key, "--state-dir", str(tmp_path / "file" / "state"))
    assert err.startswith("licclient: The state cannot be written (")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "licclient: error: the following arguments are required: COMMAND"),
        (["verify"], "licclient verify: error: the following arguments are required: KEY"),
        (["--server", "http://x", "CP-ABC"], "invalid choice: 'CP-…'"),
        (["verify", "CP-ABC", "--nope", "CP-ABC"], "licclient verify: error: unrecognized arguments: --nope"),
        (["verify", "CP-ABC", "--prodct=N"], "did you mean --product?"),
        (["verify", "CP-ABC"], "--server URL is required"),
    ],
)
def test_wrong_arguments_are_exit_2(argv, message, capsys, monkeypatch):
    """A message without the key, below the usage of the command; with --json, one object."""
    monkeypatch.delenv("LICCLIENT_SERVER", raising=False)
    assert main(argv) == 2
    done = capsys.readouterr()
    assert message in done.err
    assert done.err.startswith("usage: licclient")
    assert "CP-ABC" not in done.err
    assert main([*argv, "--json"]) == 2
    done = capsys.readouterr()
    document = json.loads(done.out)
    assert document["error"] == "wrong_use"
    assert document["message"] in message or message.partition("error: ")[2] in document["message"]
    assert "CP-ABC" not in done.out
    assert not done.err


def test_a_malformed_request_is_exit_2(run, service, key):
    """A 422 and an empty key are wrong use."""
    assert run("verify", " ")[0] == 2
    service.responds(422, {"message": "No.", "errors": {"domain": ["The domain is bad."]}})
    status, _, err = run("verify", key, "--domain", "d")
    assert (status, err) == (2, "licclient: The domain is bad.\n")


def test_the_key_can_come_from_the_standard_input(run, shop, key, monkeypatch):
    """`-` keeps the key out of the shell's history."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(key.lower() + "\n"))
    assert run("verify", "-")[0] == 0
    assert shop.requests[0].json["license_key"] == key


@pytest.mark.parametrize(
    ("stdin", "message"),
    [
        (None, "there is no standard input to read the license key from"),
        (
            io.TextIOWrapper(io.BytesIO(b"\xff\xfeC\0P\0"), encoding="utf-8"),
            "the standard input is not utf-8 text",
        ),
    ],
)
def test_a_standard_input_without_a_key_is_wrong_use(run, service, monkeypatch, stdin, message):
    """Closed, or in UTF-16 as an old PowerShell writes it: two words instead of a traceback."""
    monkeypatch.setattr(sys, "stdin", stdin)
    assert run("verify", "-") == (2, "", f"licclient: {message}\n")
    assert service.requests == []


def test_an_address_in_the_clear_is_warned_of_in_one_line(run, key):
    """Whoever types a command does not want to read a line of our code."""
    _, _, err = run("verify", key, server="http://nowhere.invalid")
    assert err.splitlines()[0].startswith("licclient: --server is http: license keys travel in the clear")
    assert "_cli.py" not in err


def test_a_kind_is_named_by_option_or_environment(run, service, key, monkeypatch):
    """Without either none is sent here; a wrong one is a mistake in the call."""
    service.offers()
    monkeypatch.setenv("LICCLIENT_KIND", "inno")
    for options in (("--kind", "msi"), ()):
        run("check", key, "notes", "1.0", "--force", *options)
    monkeypatch.delenv("LICCLIENT_KIND")
    run("check", key, "notes", "1.0", "--force")
    assert [request.query.get("kind") for request in service.requests] == ["msi", "inno", None]
    assert "kind must be one of" in run("check", key, "notes", "1.0", "--kind", "exe")[2]


def test_a_platform_is_named_by_option_or_environment(run, service, key, monkeypatch):
    """By default it is that of this computer; an empty one is not sent."""
    service.offers()
    monkeypatch.setenv("LICCLIENT_PLATFORM", "linux-arm64")
    run("check", key, "notes", "1.0", "--force")
    for name in ("haiku", ""):
        run("check", key, "notes", "1.0", "--force", "--platform", name)
    monkeypatch.delenv("LICCLIENT_PLATFORM")
    run("check", key, "notes", "1.0", "--force")
    *sent, own = [request.query.get("platform") for request in service.requests]
    assert (sent, own) == (["linux-arm64", "haiku", None], name_platform(sys.platform, platform.machine()))


def test_check_offers(run, shop, key):
    """An update is exit 0, with its changelog."""
    status, out, _ = run("check", key, "notes", "1.0")
    assert (status, out) == (0, "Notes 2.0 is available, published 2026-11-20.\nFaster.\n")
    status, out, _ = run("check", key, "notes", "1.0", "--json")
    assert json.loads(out)["update"] == {
        "name": "Notes",
        "slug": "notes",
        "version": "2.0",
        "changelog": "Faster.",
        "last_updated": "2026-11-20 10:11:12",
        "required": False,
        "critical": False,
        "covered": False,
        "latest_version": None,
        "updates_until": None,
        "security": False,
        "advisory": None,
        "cves": [],
        "kind": None,
    }
    assert shop.count() == 1


def test_check_reports_what_the_license_covers_and_what_is_fixed(run, service, key):
    """For people and for programs; also when nothing newer is covered."""
    advisory = "https://notes.example/advisory"
    service.offers(
        "1.9",
        latest_version="3.0",
        updates_until="2026-06-30",
        security={"advisory": advisory, "cves": ["CVE-2026-1234"]},
    )
    _, out, _ = run("check", key, "notes", "1.0")
    assert f"\nThis is a security update. It fixes CVE-2026-1234. Advisory: {advisory}\n" in out
    assert "\nThe license does not cover the newest version, 3.0.\n" in out
    update = json.loads(run("check", key, "notes", "1.0", "--json")[1])["update"]
    assert (
        update
        | {
            "covered": True,
            "latest_version": "3.0",
            "updates_until": "2026-06-30",
            "security": True,
            "advisory": advisory,
            "cves": ["CVE-2026-1234"],
        }
        == update
    )
    service.offers("1.9", security={})
    assert "\nThis is a security update.\n" in run("check", key, "notes", "1.0", "--force")[1]
    service.offers("1.9", latest_version="3.0")
    status, out, _ = run("check", key, "notes", "1.9", "--force")
    assert (status, "renew the license" in out) == (1, True)
    assert json.loads(run("check", key, "notes", "1.9", "--json")[1])["latest_version"] == "3.0"


def test_check_reports_an_important_version(run, service, key):
    """For people and for programs."""
    service.offers(critical=True)
    assert "\nThis is an important update.\n" in run("check", key, "notes", "1.0")[1]
    assert json.loads(run("check", key, "notes", "1.0", "--json")[1])["update"]["critical"] is True


def test_check_distinguishes_no_update_from_no_answer(run, service, key):
    """Up to date is exit 1, also when it is remembered; an outage is exit 3, also when it is remembered."""
    service.offers("1.0")
    assert run("check", key, "notes", "1.0")[0] == 1
    assert run("check", key, "notes", "1.0")[0] == 1
    service.goes_down()
    assert run("check", key, "notes", "1.0", "--force")[0] == 3
    assert run("check", key, "notes", "1.0")[0] == 3
    service.responds(404, {"error": "no_versions", "message": "No version yet."})
    assert run("check", key, "notes", "1.0", "--force")[:2] == (1, "No version yet.\n")
    service.responds(401, {"error": "license_expired", "message": "Over."})
    assert run("check", key, "notes", "1.0", "--force")[:2] == (1, "Refused: Over.\n")
    _, out, _ = run("check", key, "notes", "1.0", "--force", "--json")
    assert json.loads(out) == {"update": None, "reason": "expired", "message": "Over."}
    service.offers(download_url=None)
    status, out, _ = run("check", key, "notes", "1.0", "--force")
    assert status == 1
    assert "support" in out


def test_download_prints_path_size_and_digest(run, shop, key, tmp_path, monkeypatch):
    """What a person needs to check the file; with `--json` no progress bar, also on a terminal."""
    path = tmp_path / "to" / "notes.zip"
    status, out, _ = run("download", key, "notes", "1.0", "--to", str(tmp_path / "to"))
    assert (status, out) == (0, f"{path}\n{len(FILE)} bytes, sha256 {sha256(FILE).hexdigest()}\n")
    assert path.read_bytes() == FILE
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    _, out, err = run("download", key, "notes", "1.0", "--to", str(tmp_path / "to"), "--json")
    assert err == ""
    assert json.loads(out) == {
        "path": str(path),
        "size": len(FILE),
        "sha256": sha256(FILE).hexdigest(),
        "version": "2.0",
        "verified": True,
    }


def test_a_file_without_a_digest_is_downloaded_with_a_warning(run, shop, key, tmp_path):
    """Its digest is printed as it arrived; `--require-digest` refuses it."""
    plain = shop.script
    shop.script = lambda request: plain(request).replace(b"Repr-Digest", b"X-None")
    order = ["download", key, "notes", "1.0", "--to", str(tmp_path / "to")]
    status, out, err = run(*order)
    assert (status, out.splitlines()[0]) == (0, str(tmp_path / "to" / "notes.zip"))
    assert err == "licclient: the file was not verified, because the service sent no digest of it\n"
    assert json.loads(run(*order, "--json")[1])["verified"] is False
    assert run(*order, "--require-digest")[0] == 3


def test_nothing_to_download_is_exit_1(run, shop, key, tmp_path):
    """No update offered is a definite no."""
    assert run("download", key, "notes", "2.0", "--to", str(tmp_path))[0] == 1


def test_a_folder_that_cannot_be_used_is_exit_2(run, shop, key, tmp_path):
    """A disk error is reported in one line."""
    (tmp_path / "file").write_text("")
    status, _, err = run("download", key, "notes", "1.0", "--to", str(tmp_path / "file"))
    assert (status, err.count("\n")) == (2, 1)


def test_the_command_that_finds_out_why_has_no_key(run, dead_url, key):
    """Typed in a wrong place, it is left out; an option with a blank is quoted."""
    for domain in (key, f"host-{key.lower()}"):
        _, _, err = run("verify", key, "--domain", domain, "--product", "Photo Lab", server=dead_url)
        assert "doctor --state-dir" in err
        assert "--domain" not in err
        assert ("--product 'Photo Lab'`" if os.name != "nt" else '--product "Photo Lab"`') in err


@pytest.mark.parametrize("command", ["check", "download"])
@pytest.mark.parametrize(
    "arguments", ["photo-lab {key} 1.0.0", "photo-lab {lower} 1.0.0", "{key} 1.0.0 photo-lab"]
)
def test_swapped_arguments_are_answered_with_the_order(run, shop, key, command, arguments, tmp_path):
    """Before a request: a key would be sent as a slug."""
    typed = arguments.format(key=key, lower=key.lower()).split()
    more = ["--to", str(tmp_path)] if command == "download" else []
    status, out, err = run(command, *typed, *more)
    assert (status, out) == (2, "")
    assert err.endswith("; the arguments are KEY SLUG VERSION, in this order\n")
    assert shop.requests == []


def test_a_folder_that_is_not_there_is_no_app_without_a_previous_version(run, tmp_path):
    """A mistyped folder is a wrong use."""
    missing = tmp_path / "nowhere"
    assert run("roll-back", str(missing)) == (2, "", f"licclient: {missing}: {NO_FILE}\n")
    missing.write_bytes(b"")
    assert run("roll-back", str(missing)) == (2, "", f"licclient: {missing}: Not a directory\n")


def test_apply_and_roll_back_need_no_server(run, tmp_path, capsys):
    """What was downloaded is put in force, and the version before comes back; also for programs."""
    root = tmp_path / "app"
    for version in ("1.0", "1.1"):
        update = downloaded(tmp_path, app(version), version)
        apply = (
            f"apply {update.path} --version {version} --sha256 {update.sha256.upper()} --to {root}".split()
        )
        assert main(apply) == 0
    folder = Installation(root).current.folder
    assert capsys.readouterr().out.splitlines()[-1] == str(folder)
    assert main([*apply, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"version": "1.1", "folder": str(folder)}
    status, out, _ = run("roll-back", str(root), "--json")
    assert (status, json.loads(out)["version"]) == (0, "1.0")
    assert run("roll-back", str(root))[:2] == (1, "There is no previous version.\n")


def test_what_cannot_be_applied_is_reported_in_one_line(run, tmp_path):
    """No file, another file, no zip, no version: each with its own status, and none with a traceback."""
    good, bad = downloaded(tmp_path, app("1.0"), "1.0"), downloaded(tmp_path, b"no zip", "1.0")

    def apply(path, sha256, version="1.0", *more: str):
        words = f"apply {path} --version {version} --sha256 {sha256} --to {tmp_path}/app"
        return run(*words.split(), *more)

    assert apply(tmp_path / "nowhere", good.sha256)[0] == 2
    assert apply(good.path, good.sha256, "../1")[0] == 2
    assert apply(good.path, "md5")[0] == 2
    for path, kind in ((good.path, "untrusted"), (bad.path, "unusable_archive")):
        status, out, _ = apply(path, bad.sha256, "1.0", "--json")
        assert (status, json.loads(out)["error"]) == (3, kind)
    status, out, err = apply(bad.path, bad.sha256)
    assert (status, out, err.count("\n")) == (3, "", 1)


def test_a_server_cannot_steer_the_terminal(run, service, key):
    """Escape sequences in the server's words are taken out."""
    service.refuses(403, "\x1b[2Jgone\x07")
    assert run("verify", key)[1] == "Refused: \ufffd[2Jgone\ufffd\n"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is sent another way on Windows; not tried there")
def test_ctrl_c_is_exit_130_without_a_traceback(service, tmp_path, key):
    """Interrupting while the server is silent ends at once, quietly."""

    def silent(_):
        time.sleep(20)  # on a thread of the service, which nobody waits for
        yield b""

    service.script = silent
    command = [sys.executable, "-m", "licclient", "--server", service.url, "--state-dir", str(tmp_path)]
    with subprocess.Popen([*command, "verify", key], stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 20
        while not service.requests and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "Traceback" not in err


def test_the_version_is_printed(capsys):
    """`--version` needs nothing else."""
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("licclient 0.")
