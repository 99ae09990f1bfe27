"""The command `licclient`: verify a key, look for an update, download it, apply it, find out what is wrong.

Exit status: 0 valid, offered, downloaded, applied, nothing wrong; 1 a definite no, something wrong; 2 wrong
use; 3 no trustworthy answer or file; 130 interrupted. Neither the license key nor a download link is ever
printed.
"""

import argparse
import json
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, NoReturn

import licclient
from licclient._bar import progress_bar
from licclient._client import LicenseClient
from licclient._clock import real_clock
from licclient._model import License, Source, Update
from licclient.errors import (
    InvalidRequestError,
    LicclientError,
    LicenseRefusedError,
    UntrustedResponseError,
    UnusableArchiveError,
)

YES: Final = 0
NO: Final = 1
WRONG_USE: Final = 2
NO_ANSWER: Final = 3
INTERRUPTED: Final = 130

_STDIN: Final = "-"


class _Parser(argparse.ArgumentParser):
    """An argument parser whose complaints do not repeat a license key."""

    def error(self, message: str) -> NoReturn:
        super().error(re.sub(r"CP-[A-Z0-9-]+", "CP-…", message, flags=re.IGNORECASE))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Arguments without the program's name; those of the process when None.

    Returns:
        The exit status.
    """
    try:
        parser = _parser()
        told = parser.parse_args(argv)
        if not told.local and told.server is None:
            parser.error("the following arguments are required: --server")
    except KeyboardInterrupt:
        return INTERRUPTED
    try:
        if told.key == _STDIN:
            told.key = _typed_in()
        if told.local:
            change: Callable[[argparse.Namespace], int] = told.run
            return change(told)
        with _client(told) as client:
            run: Callable[[argparse.Namespace, LicenseClient], int] = told.run
            return run(told, client)
    except LicclientError as problem:
        return _say_failure(told, problem)
    except (ValueError, OSError, ImportError) as problem:
        return _say_error(told, WRONG_USE, "wrong_use", str(problem))
    except KeyboardInterrupt:
        print("licclient: interrupted", file=sys.stderr)
        return INTERRUPTED


def _typed_in() -> str:
    """Read the key from the standard input.

    Raises:
        ValueError: There is no standard input, or no text in it.
    """
    if sys.stdin is None:
        raise ValueError("there is no standard input to read the key from")
    try:
        return sys.stdin.readline()
    except UnicodeDecodeError:
        # Its own words are about bytes, and hold some of them.
        raise ValueError(f"the standard input is no text in {sys.stdin.encoding}") from None


# --- the commands -----------------------------------------------------------------------------


def _verify(told: argparse.Namespace, client: LicenseClient) -> int:
    found = client.verify(told.key, force=told.force)
    document = {
        "valid": True,
        "product": found.product,
        "expiry": found.expiry.isoformat() if found.expiry else None,
        "lifetime": found.lifetime,
        "checked_at": found.checked_at.isoformat(),
        "source": found.source.value,
        "authenticated": found.authenticated,
    }
    _say(told, document, f"Valid: {found.product}, {_term(found)} ({_origin(found, real_clock())}).")
    return YES


def _check(told: argparse.Namespace, client: LicenseClient) -> int:
    found = client.check_for_update(told.key, force=told.force)
    if found is None:
        return _say_no_update(told, client)
    lines = [f"{found.name} {found.version} is available, published {found.last_updated:%Y-%m-%d}."]
    lines += [found.changelog_text] if found.changelog_text else []
    _say(told, {"update": _shown(found)}, *lines)
    return YES


def _download(told: argparse.Namespace, client: LicenseClient) -> int:
    # Somebody who runs this wants it now, so the cadence does not apply.
    found = client.check_for_update(told.key, force=True)
    if found is None:
        return _say_no_update(told, client)
    with progress_bar(sys.stderr, shown=not told.json) as progress:
        result = client.download(found, told.to, progress)
    document = {
        "path": str(result.path),
        "size": result.size,
        "sha256": result.sha256,
        "version": result.version,
    }
    _say(told, document, str(result.path), f"{result.size} bytes, sha256 {result.sha256}")
    return YES


def _say_no_update(told: argparse.Namespace, client: LicenseClient) -> int:
    found = client.last_update_check
    if found.error is not None:
        return _say_failure(told, found.error)
    _say(told, {"update": None, "message": found.message}, found.message)
    return NO


def _apply(told: argparse.Namespace) -> int:
    from licclient._part_file import Downloaded  # noqa: PLC0415 - rarely needed
    from licclient.install import Installation  # noqa: PLC0415 - as above

    file = Path(told.file)
    downloaded = Downloaded(file, file.stat().st_size, told.sha256.lower(), told.version)
    made = Installation(told.to).apply(downloaded)
    _say(told, {"version": made.version, "folder": str(made.folder)}, str(made.folder))
    return YES


def _roll_back(told: argparse.Namespace) -> int:
    from licclient.install import Installation  # noqa: PLC0415 - rarely needed

    found = Installation(told.folder).roll_back()
    if found is None:
        _say(told, {"version": None, "folder": None}, "There is no version before this one.")
        return NO
    _say(told, {"version": found.version, "folder": str(found.folder)}, str(found.folder))
    return YES


def _doctor(told: argparse.Namespace, client: LicenseClient) -> int:
    from licclient._doctor import examine, write_report  # noqa: PLC0415 - rarely needed

    context, agent = client._context, client._agent  # noqa: SLF001 - to tell fine from not
    findings = examine(context, agent)
    document = [{"name": one.name, "fine": one.is_fine, "words": one.words} for one in findings]
    _say(told, {"findings": document}, write_report(findings, context.now()))
    return NO if any(one.is_fine is False for one in findings) else YES


# --- what people read -------------------------------------------------------------------------


def _say(told: argparse.Namespace, document: dict[str, Any], *lines: str) -> None:
    if told.json:
        print(json.dumps(document))
        return
    for line in lines:
        print(_printable(line))


def _say_failure(told: argparse.Namespace, problem: LicclientError) -> int:
    if isinstance(problem, LicenseRefusedError):
        no: dict[str, Any] = {"valid": False} if told.run is _verify else {"update": None}
        _say(
            told,
            no | {"reason": problem.reason.value, "message": problem.message},
            f"Refused: {problem.message}",
        )
        return NO
    if isinstance(problem, InvalidRequestError):
        return _say_error(told, WRONG_USE, "invalid_request", str(problem))
    kinds = {UntrustedResponseError: "untrusted", UnusableArchiveError: "unusable_archive"}
    kind = kinds.get(type(problem), "unavailable")
    return _say_error(told, NO_ANSWER, kind, str(problem))


def _say_error(told: argparse.Namespace, status: int, kind: str, message: str) -> int:
    if told.json:
        print(json.dumps({"error": kind, "message": message}))
    else:
        print(f"licclient: {_printable(message)}", file=sys.stderr)
    return status


def _shown(update: Update) -> dict[str, str]:
    return {
        "name": update.name,
        "slug": update.slug,
        "version": update.version,
        "changelog": update.changelog,
        "last_updated": f"{update.last_updated:%Y-%m-%d %H:%M:%S}",
    }


def _term(found: License) -> str:
    if found.expiry is not None:
        return f"valid through {found.expiry.isoformat()} UTC"
    return "lifetime license" if found.lifetime else "no expiry"


def _origin(found: License, now: datetime) -> str:
    match found.source:
        case Source.SERVER:
            return "confirmed by the server just now"
        case Source.CACHE:
            return f"from the cache, checked {_ago(now - found.checked_at)}"
        case Source.GRACE:
            return f"in the grace period: last checked {_ago(now - found.checked_at)}"


def _ago(span: timedelta) -> str:
    minutes = max(0, int(span.total_seconds() // 60))
    for size, unit in ((24 * 60, "day"), (60, "hour"), (1, "minute")):
        if minutes >= size:
            count = minutes // size
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "less than a minute ago"


def _printable(text: str) -> str:
    """Take out of a server's text what would steer a terminal, and what its encoding cannot show."""
    shown = "".join(letter if letter.isprintable() or letter in "\n\t" else "�" for letter in text)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return shown.encode(encoding, errors="replace").decode(encoding)


# --- arguments --------------------------------------------------------------------------------


def _client(told: argparse.Namespace) -> LicenseClient:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", UserWarning)
        client = LicenseClient(
            told.server,
            product=told.product,
            slug=told.slug,
            version=told.installed,
            domain=told.domain,
            state_dir=told.state_dir,
            public_keys=told.public_key,
            release_keys=told.release_key,
        )
    for one in warned:  # without the line of our code that Python would show
        print(f"licclient: {_printable(str(one.message))}", file=sys.stderr)
    return client


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="licclient", description="Verify a license key, and find and download updates.")
    parser.add_argument("--version", action="version", version=f"licclient {licclient.__version__}")
    parser.add_argument("--server", metavar="URL", help="address of the license service")
    parser.add_argument(
        "--public-key",
        action="append",
        metavar="KEY",
        help="demand answers signed by this key of the service; may be given several times",
    )
    parser.add_argument(
        "--release-key",
        action="append",
        metavar="KEY",
        help="take only versions signed by this key of the vendor; may be given several times",
    )
    parser.add_argument("--state-dir", metavar="DIR", help="where to keep cache and installation id")
    parser.set_defaults(key=None, product=None, slug=None, installed=None, domain=None, local=False)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    verify = _command(commands, "verify", _verify, "tell whether a license key is valid")
    verify.add_argument("--product", metavar="NAME", help="refuse a key that is for another product")
    _add_domain(verify)
    verify.add_argument(
        "--force", "--recheck", action="store_true", help="ask the server also when the cache is fresh"
    )

    check = _command(commands, "check", _check, "tell whether there is a newer version")
    _add_installed(check)
    _add_domain(check)
    check.add_argument("--force", action="store_true", help="ask the server now")

    download = _command(commands, "download", _download, "download the newest version")
    _add_installed(download)
    _add_domain(download)
    download.add_argument("--to", required=True, metavar="DIR", help="folder for the file")

    apply = _command(commands, "apply", _apply, "put a downloaded version in force; no server", key=False)
    apply.add_argument("file", metavar="FILE", help="the zip, as downloaded")
    apply.add_argument("--version", required=True, metavar="VERSION", help="the version that it is")
    apply.add_argument("--sha256", required=True, metavar="HEX", help="its digest, as `download` told it")
    apply.add_argument("--to", required=True, metavar="DIR", help="the app's own folder")
    apply.set_defaults(local=True)

    back = _command(commands, "roll-back", _roll_back, "go back to the version before; no server", key=False)
    back.add_argument("folder", metavar="DIR", help="the app's own folder")
    back.set_defaults(local=True)

    doctor = _command(commands, "doctor", _doctor, "find out what is wrong, for a mail to support", key=False)
    doctor.add_argument("--product", metavar="NAME", help="the app's product, to find its license")
    doctor.add_argument("--slug", metavar="SLUG", help="the app's slug, to find its license")
    _add_domain(doctor)
    return parser


def _command(
    commands: Any, name: str, run: Callable[..., int], purpose: str, *, key: bool = True
) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=purpose, description=purpose.capitalize() + "."
    )
    if key:
        command.add_argument(
            "key", metavar="KEY", help="the license key, or - to read it from the standard input"
        )
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.set_defaults(run=run)
    return command


def _add_installed(command: argparse.ArgumentParser) -> None:
    command.add_argument("slug", metavar="SLUG", help="slug of the product")
    command.add_argument("installed", metavar="VERSION", help="the version that is installed")


def _add_domain(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--domain", metavar="D", help="where it is installed; default: an id of this installation"
    )
