"""Libraries that few processes need, each imported when it is used first: write `libraries.jinja2.Template`.

Together they would double the time of a command and take 40 MiB of each worker process. Everything else is
imported at the head of its module.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import aiosmtplib
    import argon2
    import filelock
    import jinja2
    import jinja2.sandbox as jinja2_sandbox
    import nh3
    import prometheus_client.core as prometheus_core
    import prometheus_client.exposition as prometheus_exposition
    import pyotp
    import segno
    import zxcvbn
    from cryptography import exceptions as cryptography_exceptions
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519
    from cryptography.hazmat.primitives.ciphers import aead

    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd

__all__ = [
    "aead",
    "aiosmtplib",
    "argon2",
    "cryptography_exceptions",
    "ed25519",
    "filelock",
    "jinja2",
    "jinja2_sandbox",
    "nh3",
    "prometheus_core",
    "prometheus_exposition",
    "pyotp",
    "segno",
    "serialization",
    "zstd",
    "zxcvbn",
]

_MODULES: Final = {
    "aead": "cryptography.hazmat.primitives.ciphers.aead",  # 8 MiB: only to issue and to show keys
    "aiosmtplib": "aiosmtplib",  # where mail is on
    "argon2": "argon2",  # where users sign in to the console
    "cryptography_exceptions": "cryptography.exceptions",
    "ed25519": "cryptography.hazmat.primitives.asymmetric.ed25519",  # for keys in PEM
    "filelock": "filelock",  # 13 ms: most commands only read
    "jinja2": "jinja2",  # 37 ms: pages and mails
    "jinja2_sandbox": "jinja2.sandbox",  # mails
    "nh3": "nh3",  # to publish
    "prometheus_core": "prometheus_client.core",  # 22 ms: where metrics are on
    "prometheus_exposition": "prometheus_client.exposition",
    "pyotp": "pyotp",  # second factors
    "segno": "segno",  # 85 ms: the QR code that enrols a second factor
    "serialization": "cryptography.hazmat.primitives.serialization",
    "zstd": "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd",  # patches
    "zxcvbn": "zxcvbn",  # 12 MiB: new passwords
}
"""The module of each name, and when it is used."""


if not TYPE_CHECKING:  # or each name would be a module without types

    def __getattr__(name: str) -> ModuleType:
        """Import a library at its first use."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = import_module(_MODULES[name])
        globals()[name] = module
        return module
