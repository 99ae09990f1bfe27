"""What systemd is told of us, where the unit is of `Type=notify` as the one in `deploy/`."""

import logging
import os
import socket
from collections.abc import Callable

_log = logging.getLogger("licserver.serving")


def take_supervisor() -> Callable[[], None]:
    """Take over who waits for us to answer, if anybody does.

    The variable leaves the environment here: gunicorn would send word itself, before anybody answers.

    Returns:
        What sends word, once; it does nothing where nobody waits. It may be called in another process.
    """
    address = os.environ.pop("NOTIFY_SOCKET", None)

    def tell() -> None:
        if address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                # A leading @ stands for the name of an abstract socket (sd_notify(3)).
                sock.sendto(b"READY=1", f"\0{address[1:]}" if address.startswith("@") else address)
        except OSError as problem:  # who waits will end us; the log then says why
            _log.error("cannot tell the supervisor that the server answers: %s", problem)

    return tell
