"""One's own account."""

from licserver.web.console.page_context import Page, PageContext


def show(visit: PageContext) -> Page:
    """Show the form for another password, and whether there is a second factor."""
    return Page("account.html", {"left": visit.services.second_factors.count_recovery_codes(visit.who)})
