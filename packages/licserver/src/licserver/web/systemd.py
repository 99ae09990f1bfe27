"""Readiness for systemd, whose unit in `deploy/` is of `Type=notify`."""

import logging
import os
import socket
from collections.abc import Callable

_log = logging.getLogger("licserver.serving")


def take_supervisor() -> Callable[[], None]:
    """Take NOTIFY_SOCKET out of the environment; return a function that notifies it once, in any process.

    gunicorn would notify it before the server accepts connections. Without the variable, nothing is sent.
    """
    address = os.environ.pop("NOTIFY_SOCKET", None)

    def notify() -> None:
        if address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                # A leading @ stands for the name of an abstract socket (sd_notify(3)).
                sock.sendto(b"READY=1", f"\0{address[1:]}" if address.startswith("@") else address)
        except OSError as problem:  # systemd will end the server; the log then has the reason
            _log.error("cannot notify systemd that the server is ready: %s", problem)

    return notify
