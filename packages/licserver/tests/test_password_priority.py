"""Hashing a password leaves the processor to requests."""

import os
import sys
import threading

import pytest

from licserver.security import passwords


@pytest.mark.skipif(sys.platform != "linux", reason="threads have a priority of their own on Linux only")
def test_a_password_is_hashed_at_low_priority(monkeypatch):
    """The thread that hashes is nicer than its caller, whose own priority stays."""

    def niceness():
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    class Hasher:
        def verify(self, _kept, _password):
            seen.append(niceness())

    before, seen = niceness(), []
    monkeypatch.setattr(passwords, "_hasher", Hasher)
    assert passwords.verify_password("kept", "a password")
    assert (seen[0] > before, niceness()) == (True, before)
