"""The command `licclient`: verify a key, check for an update, download it, install it, diagnose.

Exit status: 0 yes; 1 no; 2 wrong use; 3 no trustworthy response or file; 130 interrupted. Neither the license
key nor a download link is ever printed.
"""

import argparse
import difflib
import errno
import os
import shlex
import stat
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import licclient
from licclient._cli._output import (
    Output,
    flush_output,
    format_entitlements,
    format_origin,
    format_term,
    progress_bar,
    update_document,
    write,
)
from licclient._client import LicenseClient
from licclient._core.clock import real_clock
from licclient._core.lazy import lazy
from licclient._core.model import AUTO, Reason, Source, write_entitlements
from licclient._core.policy import is_version
from licclient._core.requests import hide_keys
from licclient._core.settings import Trust, Updates
from licclient._core.typed_key import is_license_key, repair_key
from licclient.errors import (
    DeactivationError,
    InvalidRequestError,
    LicclientError,
    LicenseFileError,
    LicenseRefusedError,
    StateUnreadableError,
    UntrustedResponseError,
    UnusableArchiveError,
)

if TYPE_CHECKING:
    from licclient import _doctor as _doctor_module
    from licclient import install
    from licclient._core import update_model
    from licclient._core.update_model import UpdateCheck
else:
    _doctor_module = lazy("licclient._doctor")
    update_model = lazy("licclient._core.update_model")
    install = lazy("licclient.install")

YES: Final = 0
NO: Final = 1
WRONG_USE: Final = 2
NO_ANSWER: Final = 3
INTERRUPTED: Final = 130

_STDIN: Final = "-"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    try:
        return _main(argv)
    finally:
        flush_output()


def _main(argv: Sequence[str] | None) -> int:
    try:
        args = _parse(argv)
        with Output(as_json=args.json) as output:
            return _run(args, output)
    except _WrongUseError as wrong:
        return _print_wrong_use(wrong, as_json="--json" in (sys.argv if argv is None else argv))
    except KeyboardInterrupt:
        write("licclient: interrupted", sys.stderr)
        return INTERRUPTED


def _run(args: argparse.Namespace, output: Output) -> int:
    try:
        if not args.needs_server:
            return int(args.run(args, output))
        if args.key is not None:
            args.key = _read_key(args.key)
        with _open_client(args, output) as client:
            return int(args.run(args, output, client))
    except LicclientError as problem:
        return _print_failure(args, output, problem)
    except OSError as problem:
        # Without the number that Python's own message has.
        path = "" if problem.filename is None else f"{problem.filename}: "
        return output.error(WRONG_USE, "wrong_use", f"{path}{problem.strerror or problem}")
    except (ValueError, ImportError) as problem:
        return output.error(WRONG_USE, "wrong_use", str(problem))


def _print_wrong_use(wrong: "_WrongUseError", *, as_json: bool) -> int:
    if as_json:
        return Output(as_json=True).error(WRONG_USE, "wrong_use", str(wrong))
    write(f"{wrong.parser.format_usage()}{wrong.parser.prog}: error: {wrong}", sys.stderr)
    return WRONG_USE


def _read_key(typed: str) -> str:
    """Return the license key, repaired if possible; what else it is, the server decides (D-02)."""
    if typed == _STDIN:
        if sys.stdin is None:
            raise ValueError("there is no standard input to read the license key from")
        try:
            typed = sys.stdin.readline()
        except UnicodeDecodeError:
            # The original message quotes bytes of the key.
            raise ValueError(f"the standard input is not {sys.stdin.encoding} text") from None
    repaired = repair_key(typed)
    return repaired if isinstance(repaired, str) else typed


def _open_client(args: argparse.Namespace, output: Output) -> LicenseClient:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        client = LicenseClient(
            args.server,
            product=args.product,
            slug=args.slug,
            version=args.installed,
            domain=args.domain,
            label=args.label,
            storage=args.state_dir,
            updates=Updates(
                platform=AUTO if args.platform is None else args.platform,
                kind=args.kind,
                channels=args.channel or (),
            ),
            trust=Trust(
                public_keys=args.public_key,
                release_keys=args.release_key,
                require_digest=args.require_digest,
            ),
        )
    for warning in caught:  # without the line of our code that Python would print
        output.complain(str(warning.message))
    return client


# --- commands ---------------------------------------------------------------------------------


def _verify(args: argparse.Namespace, output: Output, client: LicenseClient) -> int:
    license_ = client.verify(args.key, force=args.force)
    origin = format_origin(license_, real_clock())
    if args.force and license_.source is not Source.SERVER:
        failed = (
            "the server did not confirm it"
            if license_.source is Source.FILE
            else "no response from the server"
        )
        origin = f"the recheck failed: {failed}; {origin}"
    document = {
        "valid": True,
        "product": license_.product,
        "expiry": license_.expiry.isoformat() if license_.expiry else None,
        "lifetime": license_.is_lifetime,
        "checked_at": license_.checked_at.isoformat(),
        "source": license_.source.value,
        "authenticated": license_.is_authenticated,
        "entitlements": write_entitlements(license_.entitlements),
        "trial": license_.is_trial,
        "updates_until": license_.updates_until and license_.updates_until.isoformat(),
    }
    lines = [f"Valid: {license_.product}{', trial' * license_.is_trial}, {format_term(license_)} ({origin})."]
    lines += [f"It includes: {format_entitlements(license_.entitlements)}."] if license_.entitlements else []
    lines += (
        [f"It covers versions published through {until} UTC."] if (until := document["updates_until"]) else []
    )
    output.result(document, *lines)
    return YES


def _deactivate(args: argparse.Namespace, output: Output, client: LicenseClient) -> int:
    client.deactivate(args.key)
    output.result({"deactivated": True}, "The slot of this installation is free.")
    return YES


def _request_file(_: argparse.Namespace, output: Output, client: LicenseClient) -> int:
    request = client.license_file.request()
    output.result({"request": request}, request)
    return YES


def _install_file(args: argparse.Namespace, output: Output, client: LicenseClient) -> int:
    license_ = client.license_file.install(args.file)
    until = client.status().grace_ends_at
    shown = "" if until is None else f"{until:%Y-%m-%d %H:%M} UTC"
    document = {"product": license_.product, "ends_at": until and until.isoformat()}
    output.result(document, f"Installed: {license_.product}, valid without a network until {shown}.")
    return YES


def _check(args: argparse.Namespace, output: Output, client: LicenseClient) -> int:
    check = client.check_for_update(args.key, force=args.force)
    update = check.update
    if update is None:
        return _print_no_update(args, output, check)
    lines = [f"{update.name} {update.version} is available, published {update.last_updated:%Y-%m-%d}."]
    lines += ["The installed version is no longer supported."] if update.is_required else []
    lines += ["This is an important update."] if update.is_critical else []
    lines += [_describe_security(update)] if update.is_security else []
    if update.is_covered:
        lines += [f"The license does not cover the newest version, {update.latest_version}."]
    lines += [update.changelog_text] if update.changelog_text else []
    output.result({"update": update_document(update)}, *lines)
    return YES


def _describe_security(update: update_model.Update) -> str:
    cves = f" It fixes {', '.join(update.cves)}." if update.cves else ""
    return f"This is a security update.{cves}" + (f" Advisory: {update.advisory}" if update.advisory else "")


def _download(args: argparse.Namespace, output: Output, client: LicenseClient) -> int:
    # A person is waiting, so `check_every` does not apply.
    check = client.check_for_update(args.key, force=True)
    if check.update is None:
        return _print_no_update(args, output, check)
    with progress_bar(sys.stderr, shown=not args.json) as progress:
        file = client.download(check.update, args.to, progress, key=args.key)
    document = {
        "path": str(file.path),
        "size": file.size,
        "sha256": file.sha256,
        "version": file.version,
        "verified": file.is_verified,
    }
    output.result(document, str(file.path), f"{file.size} bytes, sha256 {file.sha256}")
    if not file.is_verified:
        output.complain("the file was not verified, because the service sent no digest of it")
    return YES


def _apply(args: argparse.Namespace, output: Output) -> int:
    file = Path(args.file)
    downloaded = update_model.Downloaded(
        file, file.stat().st_size, args.sha256.lower(), args.version, is_verified=True
    )
    installed = install.Installation(args.to).apply(downloaded)
    output.result({"version": installed.version, "folder": str(installed.folder)}, str(installed.folder))
    return YES


def _roll_back(args: argparse.Namespace, output: Output) -> int:
    if not stat.S_ISDIR(Path(args.folder).stat().st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), args.folder)
    installed = install.Installation(args.folder).roll_back()
    if installed is None:
        output.result({"version": None, "folder": None}, "There is no previous version.")
        return NO
    output.result({"version": installed.version, "folder": str(installed.folder)}, str(installed.folder))
    return YES


def _doctor(_: argparse.Namespace, output: Output, client: LicenseClient) -> int:
    edges = client._session, client._agent, client._given_transport  # noqa: SLF001 - all of it is examined
    findings, report = _doctor_module.diagnose(*edges)
    document = [
        {"name": finding.name, "ok": finding.is_fine, "message": finding.text} for finding in findings
    ]
    output.result({"findings": document}, report)
    return NO if any(finding.is_fine is False for finding in findings) else YES


def _print_no_update(args: argparse.Namespace, output: Output, check: "UpdateCheck") -> int:
    if check.error is not None:
        return _print_failure(args, output, check.error)
    document = {"update": None, "message": check.message, "required": check.is_update_required}
    document["latest_version"] = check.latest_version
    output.result(document, check.message)
    return NO


def _print_failure(args: argparse.Namespace, output: Output, problem: LicclientError) -> int:
    match problem:
        case LicenseRefusedError():
            no = _NO.get(args.run, {"update": None})
            document = {**no, "reason": problem.reason.value, "message": problem.message}
            is_update = problem.reason in (
                Reason.NO_VERSION,
                Reason.UNKNOWN_PRODUCT,
            )  # which does not concern the license
            output.result(document, problem.message if is_update else f"Refused: {problem.message}")
            return NO
        case DeactivationError():
            at = None if problem.retry_at is None else problem.retry_at.isoformat()
            output.result({"deactivated": False, "message": problem.message, "retry_at": at}, problem.message)
            return NO
        case InvalidRequestError():
            return output.error(WRONG_USE, "invalid_request", problem.message)
        case UntrustedResponseError():
            return output.error(NO_ANSWER, "untrusted", problem.message)
        case StateUnreadableError():
            return output.error(NO_ANSWER, "state_unreadable", problem.message)
        case LicenseFileError():
            return output.error(NO_ANSWER, "license_file", problem.message)
        case UnusableArchiveError():
            return output.error(NO_ANSWER, "unusable_archive", problem.message)
        case _:
            message = f"{problem.message} Run `{_write_doctor_command(args)}` to find out why."
            return output.error(NO_ANSWER, "unavailable", message)


def _write_doctor_command(args: argparse.Namespace) -> str:
    """Return the command with the options that were typed; never with a license key."""
    words = ["licclient"]
    for name, value in args.typed.items():
        option = "--version" if name == "installed" else f"--{name.replace('_', '-')}"
        for text in value if isinstance(value, list) else [value]:
            if text != args.key and hide_keys(text) == text:
                words += [option, text]
    words.insert(3 if "server" in args.typed else 1, "doctor")
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)


# --- arguments --------------------------------------------------------------------------------

_NO: Final[dict[Any, dict[str, Any]]] = {_verify: {"valid": False}, _deactivate: {"deactivated": False}}

_FILE: Final = "--product --domain --slug"
_UPDATE: Final = "key slug installed --platform --kind --channel --domain"
_DOCTOR: Final = "--product --label --domain --slug"
_COMMANDS: Final = (
    ("verify", _verify, "check whether a license key is valid", "key --product --label --domain"),
    ("deactivate", _deactivate, "free the activation slot of this installation", "key --domain"),
    ("request-file", _request_file, "print the request for a license file of this computer", _FILE),
    ("install-file", _install_file, "install a license file; then no network is needed", _FILE),
    ("check", _check, "check for a newer version", _UPDATE),
    ("download", _download, "download the newest version", _UPDATE),
    ("apply", _apply, "install a downloaded version; needs no server", ""),
    ("roll-back", _roll_back, "return to the previous version; needs no server", ""),
    ("doctor", _doctor, "find out what is wrong; prints a report for support", _DOCTOR),
)
"""Name, function, purpose, and those of `_ARGUMENTS` that it has."""

_ARGUMENTS: Final = {
    "--server": ("URL", "address of the license service (LICCLIENT_SERVER)"),
    "--state-dir": ("DIR", "folder for cache and installation id (LICCLIENT_STATE_DIR)"),
    "--public-key": (
        "KEY",
        "require responses signed by this key of the service; repeatable (LICCLIENT_PUBLIC_KEYS)",
    ),
    "--release-key": (
        "KEY",
        "accept only versions signed by this key of the vendor; repeatable (LICCLIENT_RELEASE_KEYS)",
    ),
    "key": ("KEY", "the license key, or - to read it from the standard input"),
    "slug": ("SLUG", "slug of the product"),
    "installed": ("VERSION", "the installed version"),
    "--platform": (
        "NAME",
        "the platform whose file is wanted (LICCLIENT_PLATFORM); default: that of this computer",
    ),
    "--kind": (
        "KIND",
        "the kind of file that is wanted, such as msi or folder (LICCLIENT_KIND)",
    ),
    "--channel": (
        "NAME",
        "offer releases of this channel as well, such as beta; repeatable (LICCLIENT_CHANNELS)",
    ),
    "--product": ("NAME", "the app's product (LICCLIENT_PRODUCT)"),
    "--label": ("TEXT", "send a name for this computer, which is personal data (LICCLIENT_LABEL)"),
    "--domain": ("D", "where it is installed (LICCLIENT_DOMAIN); default: an id of this installation"),
    "--slug": ("SLUG", "the app's slug (LICCLIENT_SLUG)"),
}
"""Options of several commands: the placeholder of the value in the help, and the help."""

_TEXTS: Final = ("server", "state_dir", "product", "slug", "platform", "kind", "domain", "label")
_LISTS: Final = ("public_key", "release_key", "channel")
"""Repeatable; in the environment a list, separated by spaces. `_TEXTS` are accepted there too."""

_OF_DOCTOR: Final = (
    *("server", "state_dir", "public_key", "release_key"),
    *("product", "slug", "installed", "label", "domain"),
)
"""The options of other commands that `doctor` takes."""


class _WrongUseError(Exception):
    """Arguments that a parser refused; the message does not repeat a license key."""

    def __init__(self, parser: argparse.ArgumentParser, message: str) -> None:
        super().__init__(hide_keys(message))
        self.parser = parser


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _WrongUseError(self, message)

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """Raise an error that suggests the most similar option."""
        similar = difflib.get_close_matches(unknown[0].partition("=")[0], self._option_string_actions, 1)
        hint = f"; did you mean {similar[0]}?" if similar else ""
        self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser, environ = create_parsers()["licclient"], os.environ
    absent = dict.fromkeys((*_TEXTS, *_LISTS, "key", "installed"))
    defaults = argparse.Namespace(json=False, require_digest=False, **absent)
    args, unknown = parser.parse_known_args(argv, defaults)
    if unknown:  # by the parser of the command, whose usage has its options
        args.command.refuse(unknown)
    args.typed = {name: value for name in _OF_DOCTOR if (value := getattr(args, name)) is not None}
    for name in _TEXTS:
        if getattr(args, name) is None:
            setattr(args, name, environ.get(f"LICCLIENT_{name.upper()}") or None)
    for name in _LISTS:
        if getattr(args, name) is None:
            setattr(args, name, environ.get(f"LICCLIENT_{name.upper()}S", "").split() or None)
    if args.needs_server and args.server is None:
        parser.error("--server URL is required, or LICCLIENT_SERVER in the environment")
    if args.run in (_check, _download):
        _check_order(args)
    return args


def _check_order(args: argparse.Namespace) -> None:
    """Refuse arguments that were swapped, before a key is sent as a slug."""
    if is_license_key(args.slug.upper()):
        kind = "license key"
    elif is_version(args.slug) and not is_version(args.installed):
        kind = "version"
    else:
        return
    args.command.error(
        f"a {kind} is in the place of the slug; the arguments are KEY SLUG VERSION, in this order"
    )


def create_parsers() -> dict[str, argparse.ArgumentParser]:
    """Return the program's parser, then those of its commands, by the words before their options."""
    common = _Parser(prog="licclient", add_help=False)  # else it looks for its own name in `sys.argv`
    group = common.add_argument_group("common options, before or after the command")
    _add_arguments(group, "--server --state-dir --public-key --release-key")
    group.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON object")
    parser = _Parser(
        prog="licclient",
        description="Verify a license key, and find and download updates.",
        parents=[common],
        epilog="Lists of keys in the environment are separated by spaces.",
    )
    parser.add_argument("--version", action="version", version=f"licclient {licclient.__version__}")
    _add_arguments(parser, "--product --slug --domain --label --platform --kind --channel", is_hidden=True)
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    commands: dict[str, _Parser] = {}
    for name, run, purpose, arguments in _COMMANDS:
        description = f"{purpose[0].upper()}{purpose[1:]}."
        command = subparsers.add_parser(name, help=purpose, description=description, parents=[common])
        command.set_defaults(run=run, command=command, needs_server=run not in (_apply, _roll_back))
        _add_arguments(command, arguments)
        commands[name] = command

    verify, download, apply = commands["verify"], commands["download"], commands["apply"]
    verify.add_argument("--force", action="store_true", help="send a request even if the cache is fresh")
    commands["check"].add_argument("--force", action="store_true", help="send a request now")
    download.add_argument("--to", required=True, metavar="DIR", help="folder for the file")
    download.add_argument(
        "--require-digest", action="store_true", help="refuse a file that comes without its digest"
    )
    apply.add_argument("file", metavar="FILE", help="the zip, as downloaded")
    apply.add_argument("--version", required=True, metavar="VERSION", help="the version in it")
    apply.add_argument("--sha256", required=True, metavar="HEX", help="its digest, as `download` prints it")
    apply.add_argument("--to", required=True, metavar="DIR", help="the app's own folder")
    commands["doctor"].add_argument(
        "--version",
        dest="installed",
        default=argparse.SUPPRESS,
        metavar="VERSION",
        help="the app's version; with --slug the last check for an update is reported",
    )
    commands["roll-back"].add_argument("folder", metavar="DIR", help="the app's own folder")
    commands["install-file"].add_argument("file", metavar="FILE", help="the license file")
    return {"licclient": parser, **{f"licclient {name}": command for name, command in commands.items()}}


def _add_arguments(parser: argparse._ActionsContainer, names: str, *, is_hidden: bool = False) -> None:
    for name in names.split():
        metavar, text = _ARGUMENTS[name]
        text = argparse.SUPPRESS if is_hidden else text
        options: dict[str, Any] = {}
        if name.startswith("--"):
            # Before or after the command: the second parse must not replace what the first one found.
            options["default"] = argparse.SUPPRESS
            is_list = name.removeprefix("--").replace("-", "_") in _LISTS
            options["action"] = "append" if is_list else "store"
        parser.add_argument(name, metavar=metavar, help=text, **options)
