"""One's own account."""

from licserver.web.console.page_context import Page, PageContext


def show(context: PageContext) -> Page:
    """Show the form for another password, and whether there is a second factor."""
    return Page("account.html", {"left": context.services.second_factors.count_recovery_codes(context.user)})
