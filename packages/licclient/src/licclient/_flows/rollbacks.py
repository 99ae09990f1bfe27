"""Report the versions that were rolled back in this app's own folder, for apps that want it (D-232)."""

from typing import Final

from licclient._flows.context import Context
from licclient._flows.runners import Flow, Send
from licclient._flows.verification import installation_domain
from licclient._platform import own_platform
from licclient._protocol.responses import Attempt, Reply
from licclient._protocol.rollbacks import is_settled, report_call
from licclient._records import Document, record_name
from licclient._rolled_back import list_rolled_back

_KEPT: Final = 50
"""Versions that are remembered as reported."""


def report_rollbacks(context: Context, key: str, slug: str) -> Flow[None]:
    """Report each version once; what the service could not take now is reported after the next check."""
    settings = context.settings
    name = record_name("reported", settings.server, slug)
    for version in list_rolled_back():
        if version in _read(context.storage.load(name)):
            continue
        domain, platform = installation_domain(context), own_platform(settings.platform)
        call = report_call(settings, key, slug, version, domain, platform)
        attempt: Attempt = yield Send(call, settings.timeout.total_seconds())
        if not isinstance(attempt.result, Reply) or not is_settled(attempt.result):
            return

        def remember(document: Document | None, reported: str = version) -> Document:
            return {"versions": [*_read(document), reported][-_KEPT:]}

        context.storage.change(name, remember)


def _read(document: Document | None) -> list[str]:
    found = (document or {}).get("versions")
    return found if isinstance(found, list) else []
