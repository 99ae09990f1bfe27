"""The vendor's side in a browser: pages made by the server, which work without JavaScript.

`app` puts it together and is all that others import. A page (`pages/`) is a function of a `PageContext`;
it calls `services` and holds no rule. It runs on a thread, as everything here that waits for the database.
"""

from licserver.web.console.app import create_console

__all__ = ["create_console"]
