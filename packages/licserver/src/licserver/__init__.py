"""licserver: verify license keys and serve updates of downloadable software.

From the bottom up (``docs/architecture.md``): `domain` has records and every decision, `protocol` requests,
responses and signatures, `security` secrets and encryption, `database` and `artifacts` what is stored,
`services` what a vendor can do, `web` and `cli` how it is reached.
"""

__version__ = "0.1.0"
