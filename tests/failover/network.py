"""Cutting a program off: in a network namespace of the run's own, packets to and from its port are dropped.

Unlike a program that stands still, whose kernel goes on answering, that is how a dead machine or cable looks.
"""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

IS_OWN = "LICENSING_FAILOVER_NAMESPACE" in os.environ
"""Whether the namespace is the run's own, so that rules for packets can be made (`nox -s failover`)."""

_DROP = """
table inet failover {{
    chain input {{
        type filter hook input priority 0
        tcp dport {port} drop
        tcp sport {port} drop
    }}
}}
"""


@contextmanager
def cut_off(port: int) -> Iterator[None]:
    """Drop the packets of a port for a block; connections that outlive it go on."""
    assert IS_OWN, "rules here would be those of the machine"
    _nft(_DROP.format(port=port))
    try:
        with pytest.raises(TimeoutError):
            socket.create_connection(("127.0.0.1", port), 0.1)
        yield
    finally:
        _nft("delete table inet failover")


def _nft(rules: str) -> None:
    subprocess.run(["nft", "-f", "-"], input=rules, text=True, check=True)
