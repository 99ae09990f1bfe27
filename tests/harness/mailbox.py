"""A real SMTP server that takes mail, or refuses it as a test wants, and a vendor who sends by it."""

import socket
import ssl
import warnings
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from licserver.database.repositories.queue import Job
from licserver.services.mail import QUEUES

SENDER = "Example Software <licenses@vendor.example>"
USER, PASSWORD = "ann", "four words of a sentence"


class Mailbox:
    """Takes mail, or answers a recipient or a message as configured.

    Args:
        tls: How connections are encrypted.
        has_utf8: Whether addresses may have letters of any script.
    """

    def __init__(self, tls: str, *, has_utf8: bool) -> None:
        self.tls, self.has_utf8 = tls, has_utf8
        self.got: list[tuple[bool, list[str], bytes]] = []
        self.to_recipient, self.to_data = "250 OK", "250 OK"

    async def handle_RCPT(self, _server: Any, _session: Any, envelope: Any, address: str, _: Any) -> str:  # noqa: N802 - aiosmtpd's name
        """Take or refuse a recipient."""
        envelope.rcpt_tos.append(address)
        return self.to_recipient

    async def handle_DATA(self, server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802 - the same
        """Take or refuse a message."""
        if self.to_data.startswith("250"):
            is_encrypted = server.transport.get_extra_info("ssl_object") is not None
            self.got.append((is_encrypted, envelope.rcpt_tos, envelope.content))
        return self.to_data

    @property
    def messages(self) -> list[EmailMessage]:
        """The messages that arrived, the first first."""
        return [message_from_bytes(content, policy=policy.SMTPUTF8) for _, _, content in self.got]


def _make_controller(mailbox: Mailbox, context: ssl.SSLContext, port: int) -> Any:
    # Loaded by tests of mail alone: half a second.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from aiosmtpd.controller import Controller  # noqa: PLC0415
        from aiosmtpd.smtp import AuthResult  # noqa: PLC0415

    def log_in(_server: Any, _session: Any, _envelope: Any, _mechanism: Any, data: Any) -> AuthResult:
        is_user = (data.login, data.password) == (USER.encode(), PASSWORD.encode())
        return AuthResult(success=is_user, handled=False)

    class TlsController(Controller):
        """Lets users log in by TLS from the first byte as well; aiosmtpd itself thinks of STARTTLS only."""

        def factory(self) -> Any:
            """Make a connection's server."""
            server: Any = super().factory()  # type: ignore[no-untyped-call]
            server._auth_require_tls = server.require_starttls
            return server

    is_starttls = mailbox.tls == "starttls"
    return TlsController(
        mailbox,
        hostname="127.0.0.1",
        port=port,
        server_hostname="mail.example",  # or it asks the system, for seconds
        enable_SMTPUTF8=mailbox.has_utf8,
        **({"tls_context": context, "require_starttls": True} if is_starttls else {"ssl_context": context}),
        auth_required=True,
        authenticator=log_in,
    )


@pytest.fixture
def smtp(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Mailbox, int]]:
    """Run a server that wants TLS and a login; yield its mailbox and port.

    A test's parameter is `starttls`, the default, `tls`, or `ascii` for STARTTLS without SMTPUTF8.
    """
    import trustme  # noqa: PLC0415 - as above

    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    kind = getattr(request, "param", "starttls")
    mailbox = Mailbox("tls" if kind == "tls" else "starttls", has_utf8=kind != "ascii")
    controller = _make_controller(mailbox, context, port)
    controller.start()
    yield mailbox, port
    controller.stop()


async def send_due(world: Any) -> Sequence[Job]:
    """Send what is due, as the background does; return all mails, the latest first."""
    from licserver.jobs.mail import register_mail  # noqa: PLC0415 - the same
    from licserver.jobs.worker import JobWorker  # noqa: PLC0415 - loads aiohttp

    worker = JobWorker(world.repositories, world.clock)
    register_mail(worker, world.services)
    for queue in QUEUES:
        for job in world.repositories.queue.claim(queue, world.clock(), timedelta(minutes=1), 10):
            await worker._run(job)
    mails: Sequence[Job] = world.services.mail.list_jobs().items
    return mails


@pytest.fixture
def open_mailing(
    make_world: Callable[..., Any], smtp: tuple[Mailbox, int]
) -> Callable[..., tuple[Any, Mailbox, Callable[[], Awaitable[Sequence[Job]]]]]:
    """Open a vendor who sends by the server, with some settings: the vendor, the mailbox, and what sends."""
    mailbox, port = smtp

    def make(**settings: Any) -> tuple[Any, Mailbox, Callable[[], Awaitable[Sequence[Job]]]]:
        server = {"mail_host": "127.0.0.1", "mail_port": port, "mail_tls": mailbox.tls}
        login = {"mail_user": USER, "mail_password": PASSWORD, "mail_admin": "me@vendor.example"}
        world = make_world(**{"mail_sender": SENDER, **server, **login, **settings})
        return world, mailbox, lambda: send_due(world)

    return make


@pytest.fixture
def mailing(
    open_mailing: Callable[..., Any],
) -> tuple[Any, Mailbox, Callable[[], Awaitable[Sequence[Job]]]]:
    """A vendor with default settings, the mailbox, and what sends all that is due."""
    opened: tuple[Any, Mailbox, Callable[[], Awaitable[Sequence[Job]]]] = open_mailing()
    return opened
