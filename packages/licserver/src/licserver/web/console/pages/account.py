"""One's own account."""

from licserver.web.console.visit import Page, Visit


def show(_visit: Visit) -> Page:
    """Show the form for another password."""
    return Page("account.html", {})
