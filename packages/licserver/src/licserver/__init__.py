"""licserver: verify license keys and serve updates of downloadable software.

The rooms, from the inside out (``docs/architecture.md``): `model` holds records, `environment`
and `rules` every decision, `wire` and `signing` the protocol's text; `store`, `artifacts` and
`vault` touch the outside world; `desk` and `vendor` use them; `web` and `cli` are the doors.
"""

__version__ = "0.1.0"
