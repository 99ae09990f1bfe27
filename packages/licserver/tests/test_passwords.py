"""How passwords are hashed (D-96)."""

from licserver.security.passwords import _hasher


def test_passwords_are_hashed_as_rfc_9106_recommends():
    """64 MiB and three passes; other tests hash with less."""
    real = _hasher()
    assert (real.memory_cost, real.time_cost, real.type.name) == (65536, 3, "ID")
