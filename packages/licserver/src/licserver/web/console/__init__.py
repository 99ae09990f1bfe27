"""The console: the vendor's side in a browser, as pages rendered by the server that work without JavaScript.

`app` has the routes. A page (`pages/`) is a function of a `PageContext` that calls services, on a thread.
"""

from licserver.web.console.app import create_console

__all__ = ["create_console"]
