"""The commands of the server's guides run as they stand there, page by page; examples of JSON are parsed."""

import json
import os
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harness import release_files
from harness.fetching import verify
from harness.redis_server import Redis
from licserver.protocol.webhooks import format_event, format_secret, signed_headers
from licserver.testing import LicenseServer

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)

PRELUDE = r"""
pip() { :; }                          # what is tested is installed
age() { cat; }                        # other programs, which are not tested
ssh() { shift; bash -ec "$1"; }
licserver() {
    case "$1 $2" in
        serve*|demo*) answer "$@" ;;
        "user add") echo "four words of a sentence" | command licserver "$@" --password-stdin ;;
        *) command licserver "$@" ;;
    esac
}
answer() {                            # start a server, and stop it once it answers; the demo prints keys
    trap 'rm -f answered' RETURN
    command licserver "$@" --port 0 >answered 2>&1 & server=$!
    for _ in $(seq 300); do
        if grep -q "listening on" answered; then kill "$server"; wait "$server" || true; return 0; fi
        kill -0 "$server" 2>/dev/null || break
        sleep 0.1
    done
    cat answered >&2
    return 1
}
"""
EDD = (
    "License Key,License Status,Product Name,Activation Limit,Expiration Date\n"
    "{},active,Photo Lab,3,2027-01-31\n"
    "{},active,Photo Lab,3,2027-01-31\n"
    "{},active,Photo Lab,3,2027-01-31\n"
)
KEYS = ("5f4dcc3b5aa765d61d8327deb882cf99", "7c6a180b36896a0a8c02787eeafb0e4c")
PREPARED: dict[str, str | bytes] = {
    "photo-lab-1.2.0.zip": "zip",
    "photo-lab-1.3.0.zip": "zip",
    **{f"dist/photo-lab-{version}.zip": "zip" for version in ("1.0.0", "1.5.0", "1.6.0", "1.6.1")},
    **{f"dist/photo-lab-1.4.0.{kind}": kind for kind in ("exe", "dmg", "zip")},
    "dist/photo-lab-1.4.1.zip": "zip",
    "dist/photo-lab-1.4.1-setup.exe": release_files.nsis(),
    "dist/photo-lab-1.4.1.msi": release_files.msi(),
    "NEWS.html": "<p>The first version.</p>",
    "licenses.csv": EDD.format(*KEYS, "6cb75f652a9b52798eb6cf2201057c73"),
    "logo.svg": '<svg xmlns="http://www.w3.org/2000/svg"/>',
    "mine.csv": "Key,Seats,Expires\nAA-1234-5678,2,2027-01-31\n",
}
STUDIO_PC = "REQ-AEASGR-LHRGV4-33YBEN-CWPCNL-ZXXXA2-DPORXS-243UOV-SGS3YA-GEXDEL-RQXJUU-G"
"""The request of docs/server/offline-files.md, of the environment 0123456789abcdef0123456789abcdef."""
PHOTO_LAB = 'licserver product add photo-lab --name "Photo Lab"'


@dataclass
class Page:
    """How the commands of a page are run.

    Args:
        before: Commands that the page supposes.
        after: Commands that show that it worked.
        replaced: Text of the page → what it is in the test.
        elsewhere: The beginning of a block that is not run → why.
    """

    before: str = ""
    after: str = "licserver check"
    replaced: dict[str, str] = field(default_factory=dict)
    elsewhere: dict[str, str] = field(default_factory=dict)


BOOTED = "`nox -s deploy` does it on a Debian with systemd"
CONTAINERS = "`tests/test_deploy.py` does it with docker-compose"
PAGES = {
    "docs/console.md": Page(),
    "docs/deploy.md": Page(
        before=f"{PHOTO_LAB}; rm licenses.csv",
        after="licserver restore licserver-*.age --data-dir piped; rm licserver-*.age",
        replaced={
            "/var/lib/licserver/": "",
            "--data-dir /tmp/try": "--data-dir restored",
            "lics clock --accept": "licserver clock --accept",
        },
        elsewhere={
            "apt-get": BOOTED,
            "systemctl daemon-reload": BOOTED,
            "cat >/usr/local/bin/lics": BOOTED,
            "lics check": BOOTED,
            "pipx run licserver deploy-files": CONTAINERS,
            "install -d -m 0700 -o licserver": BOOTED,
            "lics backup": BOOTED,
        },
    ),
    "docs/feeds.md": Page(
        before=f"{PHOTO_LAB}; mkdir Releases; touch Releases/PhotoLab-1.5.0{{,-linux}}-full.nupkg"
    ),
    "docs/moving.md": Page(before=PHOTO_LAB),
    "docs/remove.md": Page(
        before="export HOME=$PWD/home; mkdir -p ~/.local/share/licserver ~/.local/state/licclient\n"
        "licserver product add photo-studio --name P\n"
        "KEY=$(licserver license issue photo-studio --email ann@example.com); licserver signing-key add\n"
        f"licserver license file $KEY --machine {STUDIO_PC} --out studio-pc.lic",
        replaced={"erase ann@example.com": "erase ann@example.com --yes"},
        after='test "$(find ~/.local -mindepth 2)" = ""; ! licserver license show $KEY',
    ),
    "docs/server/logging.md": Page(before=PHOTO_LAB),
    "docs/server/options.md": Page(
        before="export STRIPE_SECRET=whsec_ofatest",
        after="test $(licserver source list | grep -o price_ | wc -l) = 8; licserver check",
    ),
    "docs/server/secrets.md": Page(
        before="export STRIPE_SECRET=whsec_ofatest STRIPE_SECRET_2=whsec_ofbtest\n"
        "export LICSERVER_BASE_URL=https://licenses.example.com"
    ),
    "docs/server.md": Page(),
    "docs/server/account-page.md": Page(
        before='licserver product add my-app --name "My App"',
        replaced={"/etc/licserver/logo.svg": "logo.svg"},
    ),
    "docs/server/trials.md": Page(before=PHOTO_LAB),
    "docs/server/bucket.md": Page(
        after=f"{PHOTO_LAB}; licserver release publish photo-lab 1.2.0 photo-lab-1.2.0.zip; licserver check"
    ),
    "docs/server/channels.md": Page(before=f"{PHOTO_LAB}; touch dist/photo-lab-2.0b1.zip"),
    "docs/server/data-folder.md": Page(
        before=PHOTO_LAB,
        replaced={"export LICSERVER_DATA_DIR=/var/lib/licserver": ""},
        elsewhere={
            "licserver secret copy": "`test_copied_secrets.py` does it with a program in place of ssh"
        },
    ),
    "docs/server/floating-seats.md": Page(),
    "docs/server/limits.md": Page(after="licserver serve"),
    "docs/server/mail.md": Page(
        before=f"{PHOTO_LAB}; sold=$(licserver license issue photo-lab --email ann@example.com)",
        replaced={"mail key CP-…": "mail key $sold"},
    ),
    "docs/server/personal-data.md": Page(
        before=f"{PHOTO_LAB}; licserver license issue photo-lab --email ann@example.com >sold\n"
        "licserver license issue photo-lab --email bob@example.com >sold",
        replaced={
            "erase ann@example.com ": "erase ann@example.com --yes ",
            "erase ann@example.com --yes --keep": "erase bob@example.com --yes --keep",
        },
        after="rm sold ann.json; licserver license list | grep -c photo-lab; "
        "! licserver customer export ann@example.com",
    ),
    "docs/server/covered-versions.md": Page(
        before="licserver product add photo-suite --name 'Photo Suite' --support-policy; "
        "printf zip >photo-suite-1.4.3.zip",
        after="licserver release list photo-suite --json | grep -c 'security.: true'",
    ),
    "docs/server/minimum-version.md": Page(before=PHOTO_LAB),
    "docs/server/moving-computers.md": Page(before="licserver product add my-app --name 'My App'"),
    "docs/server/moving-in.md": Page(after="licserver license list | grep -c photo-lab"),
    "docs/server/processes.md": Page(),
    "docs/server/plans.md": Page(before=PHOTO_LAB),
    "docs/server/offline-files.md": Page(
        before="licserver product add photo-studio --name P; KEY=$(licserver license issue photo-studio)",
        after="test -s studio-pc.lic",
        replaced={"CP-ABC123-DEF456-GHI789-JKL012-MNO345": '"$KEY"'},
    ),
    "docs/server/postgresql.md": Page(after=f"{PHOTO_LAB}; licserver check"),
    "docs/server/rollouts.md": Page(before=PHOTO_LAB),
    "docs/server/sales.md": Page(
        before=f"{PHOTO_LAB}; export STRIPE_SECRET=whsec_ofatest",
        replaced={
            "licserver source replay 17": "! licserver source replay 17",  # nothing was delivered here
            "licserver source answer 3": "! licserver source answer 3",
            "licserver source sync": "! licserver source sync",  # no API key
        },
    ),
    "docs/server/smaller-updates.md": Page(before=PHOTO_LAB),
    "docs/server/webhooks.md": Page(
        replaced={"licserver webhook test": "! licserver webhook test"}  # the id is that of an example
    ),
    "docs/server/signing.md": Page(
        before=f"{PHOTO_LAB}; export LICSERVER_BASE_URL=https://licenses.example.com"
    ),
    "docs/wordpress.md": Page(before="touch dist/photo-gallery-1.4.0.zip"),
}
RUN_ELSEWHERE = {
    "README.md": "tests/test_readme.py",
    "packages/licclient/README.md": "tests/test_readme.py",
    "packages/licserver/README.md": "tests/test_readme.py",
    "docs/admin-api.md": "tests/test_guides.py",
    "docs/tutorial.md": "tests/test_tutorial.py",
    "docs/app/updates.md": "tests/frozen",
    "docs/other-languages.md": "tests/test_other_languages.py",
}
NOT_RUN = {
    "CONTRIBUTING.md": "runs the tests",
    "docs/conformance.md": "tests any server; tests/test_conformance.py does it with ours",
    "packages/licconform/README.md": "the same",
    "docs/client.md": "installs from the package index",
    "docs/app/command-line.md": "is a synopsis",
    "docs/app/dialogs.md": "opens a window; tests/test_examples.py uses the same example",
}


def _blocks(page: str, kind: str) -> list[str]:
    found = BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
    return [textwrap.dedent(text) for _, name, text in found if name == kind]


def _run(script: str, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    for name, text in PREPARED.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = {**os.environ, "LICSERVER_DATA_DIR": str(folder / "vendor"), "PATH": tools, **environ}
    command = ["bash", "-ec", PRELUDE + script]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, env=environ, timeout=240
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_the_commands_of_a_page_run(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """In their order, in a shell, on one data folder."""
    page = PAGES[name]
    blocks = [block for block in _blocks(name, "sh") if not block.startswith(tuple(page.elsewhere))]
    script = "\n".join([page.before, *blocks, page.after])
    for text, other in {**page.replaced, **_services(name, request)}.items():
        assert text in script, text
        script = script.replace(text, other)
    done = _run(script, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def _services(name: str, request: pytest.FixtureRequest) -> dict[str, str]:
    """Start what a page is about, and return its addresses by those of the page."""
    match Path(name).stem:
        case "bucket":
            url, s3 = request.getfixturevalue("bucket"), request.getfixturevalue("s3")
            return {
                "s3://my-bucket/releases": url,
                "https://s3.example.com": s3.url,
                "AWS_ACCESS_KEY_ID=…": f"AWS_ACCESS_KEY_ID={s3.environ['AWS_ACCESS_KEY_ID']}",
                "AWS_SECRET_ACCESS_KEY=…": f"AWS_SECRET_ACCESS_KEY={s3.environ['AWS_SECRET_ACCESS_KEY']}",
            }
        case "limits":
            redis: Redis = request.getfixturevalue("redis")
            return {"redis://redis.example:6379/0": redis.url}
        case "postgresql":
            url = request.getfixturevalue("empty_database")
            return {"postgresql://licserver:password@db.example/licserver": f"'{url}'"}
        case _:
            return {}


@pytest.mark.parametrize(
    ("name", "start"), [(name, start) for name, page in PAGES.items() for start in page.elsewhere]
)
def test_a_block_that_another_test_runs(name: str, start: str) -> None:
    """It is on the page, and the skip says which test runs it."""
    assert any(block.startswith(start) for block in _blocks(name, "sh"))
    pytest.skip(PAGES[name].elsewhere[start])


def test_every_page_with_commands_is_known() -> None:
    """A new page is run here, or named with the test that runs it."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("packages/*/README.md")]
    names = [str(page.relative_to(ROOT)) for page in (*pages, *ROOT.glob("docs/**/*.md"))]
    with_commands = {name for name in names if _blocks(name, "sh") or _blocks(name, "console")}
    assert with_commands == {*PAGES, *RUN_ELSEWHERE, *NOT_RUN}
    for name, test in RUN_ELSEWHERE.items():
        assert (ROOT / test).exists(), (name, test)


@pytest.mark.slow
def test_the_dry_run_prints_what_the_page_shows(tmp_path: Path) -> None:
    """A new key, one that is in the database, and one that is twice in the file."""
    (shown,) = _blocks("docs/server/moving-in.md", "text")
    add, dry_run, *_ = _blocks("docs/server/moving-in.md", "sh")
    known, new = KEYS[1], KEYS[0]
    before = dry_run.replace(" --dry-run", "").replace("licenses.csv", "known.csv")
    (tmp_path / "known.csv").write_text("".join(EDD.splitlines(keepends=True)[:2]).format(known))
    script = f"{add}{before}: >shown\n{dry_run.strip()} >shown 2>&1 || true"
    text = EDD.format(new, known, new)
    done = _run(f"cat >licenses.csv <<'END'\n{text}END\n{script}", tmp_path)
    assert done.returncode == 0, done.stderr
    printed = (tmp_path / "shown").read_text().splitlines()
    assert set(shown.splitlines()) <= set(printed)


@pytest.mark.parametrize("name", [str(page.relative_to(ROOT)) for page in sorted(ROOT.glob("docs/**/*.md"))])
def test_json_is_json(name: str) -> None:
    """Each example can be read, one document or one a line."""
    for block in _blocks(name, "json"):
        try:
            json.loads(block)
        except json.JSONDecodeError:
            assert [json.loads(line) for line in block.splitlines()], block


def test_an_event_is_verified_as_the_page_says() -> None:
    """With the secret of its endpoint."""
    (block,) = _blocks("docs/server/webhooks.md", "python")
    secret, now = bytes(32), datetime.now(UTC)
    body = format_event("release.published", now, {"product": "my-app"}).encode()
    names: dict[str, Any] = {"secret": format_secret(secret), "request_body": body.decode()}
    names["request_headers"] = signed_headers("msg_1", now, body, [secret])
    exec(block, names)  # noqa: S102 - ours
    assert names["event"]["data"] == {"product": "my-app"}


@pytest.mark.slow
def test_a_shop_of_your_own_reports_a_purchase_as_the_page_shows(tmp_path: Path) -> None:
    """The page's commands and its program, as a vendor pastes them, lead to a license of the customer."""
    (program,) = _blocks("docs/server/sales.md", "python")
    (commands,) = (block for block in _blocks("docs/server/sales.md", "sh") if "--kind standard" in block)
    (tmp_path / "sell.py").write_text(program)
    script = f"""{PHOTO_LAB}
    {commands}
    command licserver serve --port 0 >answered 2>&1 & server=$!
    until grep -q "listening on" answered; do kill -0 $server; sleep 0.1; done
    sed -i "s|https://licenses.example.com|$(grep -om1 'http://[0-9.:]*' answered)|" sell.py
    python sell.py
    until licserver license list | grep ann@example.com; do kill -0 $server; sleep 0.1; done
    kill $server; wait $server
    """
    done = _run(script, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '{"status":"accepted"}' in done.stdout


def test_the_test_of_an_app_that_the_page_shows(license_server: LicenseServer) -> None:
    """The fixture's server knows the key while the app runs, and no longer when the test has revoked it."""
    (block,) = _blocks("docs/deploy.md", "python")
    seen: dict[str, Any] = {}

    def run_my_app(server: str, key: str) -> None:
        seen.update(url=server, key=key, status=verify(server, key)[0])

    names: dict[str, Any] = {"run_my_app": run_my_app}
    exec(block, names)  # noqa: S102 - ours
    names["test_my_app"](license_server)
    assert (seen["status"], verify(seen["url"], seen["key"])[0]) == (200, 403)
