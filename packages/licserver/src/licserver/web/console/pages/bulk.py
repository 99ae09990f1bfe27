"""Changes of many licenses at once, after a preview."""

from typing import Final

from licserver.domain.records import IssuedLicense
from licserver.domain.text import plural
from licserver.errors import InvalidInputError
from licserver.services import MAX_PAGE, Services
from licserver.services.license_terms import has_id_shape
from licserver.web.console.formatting import describe, license_name, number
from licserver.web.console.pages import Page, PageContext, Redirect, Reply, ask, do_once, is_confirmed
from licserver.web.console.pages.licenses import licenses_csv, read_filter

PICK: Final = "pick-"
_EFFECTS: Final = {
    "revoke": "Verify and update checks are refused from now on, and download links stop working at once.",
    "extend": "Each gets a year more: its last day, and the end of its support, as far as it has them.",
}
_DONE: Final = {"revoke": "bulk-revoked", "extend": "bulk-extended"}


def change_many(context: PageContext) -> Reply:
    """Revoke, extend or export the licenses that are ticked, or all that match the search."""
    action, chosen = context.from_form("do"), _chosen(context)
    if not chosen:
        raise InvalidInputError("tick the licenses first")
    if action == "export":
        return licenses_csv("licenses", context, iter([chosen]))
    if action not in _EFFECTS:
        raise InvalidInputError("choose what to do with the licenses")
    if action == "extend":
        chosen = [one for one in chosen if _can_be_extended(one)]
        if not chosen:
            raise InvalidInputError("none of these licenses has a last day or an end of support")
    if not is_confirmed(context):
        return _preview(context, action, chosen)

    def change_all(tx: Services, _: None) -> Redirect:
        for one in sorted(chosen, key=lambda one: one.id):  # in one order, so that no two deadlock
            if action == "revoke":
                tx.licenses.revoke(one.id.hex(), context.from_form("reason") or None)
            else:
                tx.support.extend(one.id.hex())
        return context.back(_DONE[action])

    return do_once(context, lambda: None, change_all)


def _chosen(context: PageContext) -> list[IssuedLicense]:
    services = context.services.licenses
    if context.from_form("all"):
        return services.search(read_filter(context.form), None, MAX_PAGE).items
    picked = [name.removeprefix(PICK) for name in context.form if name.startswith(PICK)]
    ids = [one for one in [*picked, *context.from_form("ids").split()] if has_id_shape(one)]
    return services.get_all(ids[:MAX_PAGE])


def _can_be_extended(license_: IssuedLicense) -> bool:
    has_day = license_.expires_on is not None and not license_.lifetime
    return has_day or license_.support_until is not None


def _preview(context: PageContext, action: str, chosen: list[IssuedLicense]) -> Page:
    count = f"{number(len(chosen))} {plural(len(chosen), 'license')}"
    form = {"do": action, "ids": " ".join(one.id.hex() for one in chosen), "once": context.from_form("once")}
    question = f"{action.capitalize()} {count}?"
    effects = [_EFFECTS[action]]
    if context.from_form("all"):
        effects.append(f"These are the first {MAX_PAGE} that match, at most.")
    for one in chosen:
        name, who = license_name(one), one.customer_email or "no email address"
        effects.append(f"{name}, {one.product_name}, {who}: {describe(one, context.now).label}")
    button = f"{action.capitalize()} {count}"
    return ask(context._replace(form=form), question, effects, button, asks_reason=action == "revoke")
