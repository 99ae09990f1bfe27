"""The updater of Tauri 2: a dynamic update server, which answers 204 if there is nothing newer. Pure."""

from typing import Final

from licserver.domain.decisions import Offer
from licserver.protocol.feeds import ROOT, is_newer, name_platform
from licserver.protocol.file_signatures import stored_signatures
from licserver.protocol.public_api import ApiResponse, format_instant, json_response
from licserver.protocol.semantic_versions import to_semantic

PATH: Final = f"{ROOT}/tauri/{{target}}/{{arch}}/{{version}}"
"""The endpoint of the app's configuration ends in `{{target}}/{{arch}}/{{current_version}}`."""


def read_platform(target: str, arch: str) -> str:
    """Return our name of a platform; a target that an app has chosen itself, with a hyphen, is one."""
    return target if "-" in target else name_platform(target, arch)


def format_update(offer: Offer, installed: str, link: str) -> ApiResponse | None:
    """Format an update; None if Tauri could not use it: nothing newer, not signed, no semantic version.

    `critical` is for apps that read the raw answer.
    """
    release = offer.release
    version, signatures = to_semantic(release.version), stored_signatures(release.file_signatures)
    if version is None or signatures is None or not is_newer(offer, installed):
        return None
    body = {
        "version": version,
        "notes": release.changelog,
        "pub_date": format_instant(release.published_at),
        "url": link,
        "signature": signatures.tauri,
    }
    return json_response(200, body | ({"critical": True} if offer.is_critical else {}))
