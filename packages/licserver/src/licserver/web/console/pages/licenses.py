"""Licenses: search, one license, issuing, and changes of many at once."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any, Final

from licserver.domain.decisions import add_year
from licserver.domain.entitlements import format_grants
from licserver.domain.extensions import DEFAULT_DAYS, MAX_DAYS
from licserver.domain.records import Environment, IssuedLicense, LicenseState
from licserver.domain.text import find_reference, parse_key_part, plural
from licserver.errors import InvalidInputError
from licserver.security.redaction import contains_key
from licserver.services import MAX_PAGE, AuditFilter, LicenseFilter, Order, Services
from licserver.services.license_terms import has_id_shape
from licserver.web.console.formatting import (
    FIELDS,
    day,
    describe,
    describe_updates,
    format_terms,
    is_touched,
    license_name,
    number,
    parse_changes,
    parse_count,
    parse_day,
    parse_terms,
    read_number,
)
from licserver.web.console.pages import (
    Actions,
    Csv,
    Page,
    PageContext,
    Redirect,
    Reply,
    TextFile,
    act,
    do_once,
    in_pages,
    once,
    with_query,
)
from licserver.web.console.pages.audit import describe_entry

_SHOWN: Final = 50
_SEARCHED: Final = ("q", "product", "state", "trial", "from", "until", "order")
"""Names of the search's fields."""

ORDERS: Final = {
    Order.NEWEST: "Newest first",
    Order.OLDEST: "Oldest first",
    Order.ENDING: "By last day, those that have one",
}
_FORMS: Final = (("slots", "change"), ("machine", "file"))
"""A field of each form that is folded up, and the name of the form."""

BULK_ACTIONS: Final = {"export": "Export as CSV", "extend": "Extend by a year …", "revoke": "Revoke …"}

_COLUMNS: Final[Mapping[str, Callable[[IssuedLicense, datetime], Any]]] = {
    "id": lambda one, _: one.id.hex(),
    "product": lambda one, _: one.product_slug,
    "product name": lambda one, _: one.product_name,
    "state": lambda one, now: describe(one, now).label,
    "customer e-mail": lambda one, _: one.customer_email,
    "note": lambda one, _: one.note,
    "issued at": lambda one, _: one.issued_at,
    "last day": lambda one, _: one.expires_on,
    "lifetime": lambda one, _: one.lifetime,
    "trial": lambda one, _: one.trial,
    "slots": lambda one, _: "unlimited" if one.slots is None else one.slots,
    "slots used": lambda one, _: one.slots_used,
    "plan": lambda one, _: one.plan,
    "entitlements instead": lambda one, _: ", ".join(format_grants(one.overrides)),
    "subscription": lambda one, _: one.subscription_id,
    "channels": lambda one, _: ", ".join(one.channels),
    "support until": lambda one, _: one.support_until,
    "revoked at": lambda one, _: one.revoked_at,
    "revoked reason": lambda one, _: one.revoked_reason,
    "license key": lambda one, _: license_name(one),
}
"""Of the CSV file."""


def search(context: PageContext) -> Page:
    """Show the licenses that match the search."""
    fields = {name: context.from_query(name) for name in _SEARCHED}
    which = read_filter(context.query)
    found = context.services.licenses.search(which, context.after, _SHOWN)
    return Page(
        "licenses.html",
        licenses=found.items,
        search=fields,
        count=None if context.after else _count(context.services, which, len(found.items), found.cursor),
        orders=ORDERS,
        bulk_actions=BULK_ACTIONS,
        searched=any(fields.values()),
        products=context.services.products.list_all(),
        states=[state.value for state in LicenseState],
        further=context.further(found.cursor, **fields),
        export=with_query("/console/licenses.csv", fields),
    )


def find(context: PageContext) -> Redirect:
    """Redirect to the license of a pasted key or link, or to the list of all that match.

    Of what was typed of a key, no more than a masked key shows is put into an address.
    """
    typed = context.typed(*_SEARCHED)
    if (found := context.services.licenses.find_pasted(typed["q"])) is not None:
        return Redirect(f"/console/licenses/{found.id.hex()}")
    part = parse_key_part(find_reference(typed["q"]) or typed["q"])
    similar = [] if part is None else context.services.licenses.find_similar(part)
    if len(similar) == 1:
        return Redirect(f"/console/licenses/{similar[0].id.hex()}", "similar")
    if part is not None and similar:
        return Redirect(with_query("/console/licenses", {**typed, "q": part.masked}), "similar")
    if any(map(contains_key, typed.values())):
        raise InvalidInputError("no license has this key, nor one that looks like it")
    return Redirect(with_query("/console/licenses", typed))


def export(context: PageContext) -> Csv:
    """Export what matches the search, without keys: `licserver export` has them."""
    which = read_filter(context.query)
    pages = in_pages(lambda cursor: context.services.licenses.search(which, cursor, MAX_PAGE))
    return licenses_csv("licenses", context, pages)


def licenses_csv(name: str, context: PageContext, pages: Iterator[Sequence[IssuedLicense]]) -> Csv:
    """Return licenses as a CSV file."""
    rows = ([tuple(get(one, context.now) for get in _COLUMNS.values()) for one in some] for some in pages)
    return Csv(name, tuple(_COLUMNS), rows)


def read_filter(fields: Mapping[str, str]) -> LicenseFilter:
    """Read the fields of the search."""
    typed = {name: fields.get(name, "").strip() for name in _SEARCHED}
    return LicenseFilter(
        query=typed["q"] or None,
        product=typed["product"] or None,
        state=LicenseState(typed["state"]) if typed["state"] in set(LicenseState) else None,
        expires_from=parse_day(typed["from"]),
        expires_until=parse_day(typed["until"]),
        order=Order(typed["order"]) if typed["order"] in ORDERS else Order.NEWEST,
        trial={"yes": True, "no": False}.get(typed["trial"]),
    )


def _count(services: Services, which: LicenseFilter, shown: int, cursor: str | None) -> str:
    """Return how many licenses there are, as text: exactly, or that there are more."""
    if cursor is None:
        return f"{number(shown)} {plural(shown, 'license')}"
    count, is_more = services.licenses.count(which) or (shown, True)
    return f"{number(count)}{'+' if is_more else ''} licenses"


def show(context: PageContext, key: str | None = None) -> Page:
    """Show a license; with its key, which reloading the page does not show again."""
    services, reference = context.services, context.parts["id"]
    license_ = services.licenses.get(reference)
    held = services.licenses.list_activations(reference, context.after, _SHOWN)
    about = AuditFilter(object=("license", license_.id.hex()))
    product = services.products.get(license_.product_slug)
    shown, entitlements = format_terms(license_), services.plans.resolve(license_)
    typed = {name: context.form[name] for name in shown if is_touched(context.form, name)}
    seats = services.seats.list_held(license_)
    return Page(
        "license.html",
        seats=seats[:_SHOWN],
        seats_used=len(seats),
        license=license_,
        id=license_.id.hex(),
        name=license_name(license_),
        product=product,
        state=describe(license_, context.now),
        updates=describe_updates(license_, product, context.now),
        entitlements=format_grants(entitlements),
        uses=services.consumption.list_current(license_.id, entitlements),
        activations=held.items,
        further=context.further(held.cursor),
        history=[describe_entry(entry) for entry in services.audit.list_page(about, limit=20).items],
        key=key,
        refusals=services.support.list_refusals(license_),
        extended=_extended(license_, context.now.date()),
        fields=FIELDS,
        was=shown,
        form={**shown, **typed},
        machine=context.from_form("machine"),
        days=context.from_form("days") or DEFAULT_DAYS,
        max_days=MAX_DAYS,
        open=context.problem and next((name for field, name in _FORMS if field in context.form), ""),
        here=context.page,
    )


def _extended(license_: IssuedLicense, today: date) -> str | None:
    """Return until when a license lasts if it is extended, or is supported if it lasts for ever."""
    end = license_.support_until if license_.lifetime else license_.expires_on or license_.support_until
    return None if end is None else day(add_year(end, today))


def export_activations(context: PageContext) -> Csv:
    """Export a license's activations."""
    reference = context.parts["id"]
    pages = in_pages(lambda cursor: context.services.licenses.list_activations(reference, cursor, MAX_PAGE))
    rows = ([(*one.environment, *one[1:]) for one in some] for some in pages)
    columns = ("domain", "ip", "first seen", "last seen", "label", "app version", "file until")
    return Csv("activations", columns, rows)


def new(context: PageContext) -> Page:
    """Show the form for new licenses."""
    usual = {"slots": "1", "count": "1", "lifetime": "", "subscription": ""}
    form = {name: context.form.get(name, "") for name in (*(field.name for field in FIELDS), *usual)}
    return Page(
        "issue.html",
        products=context.services.products.list_all(),
        chosen=context.form.get("product", "") or context.from_query("product"),
        fields=FIELDS,
        form={name: text or usual.get(name, "") for name, text in form.items()},
    )


def issue(context: PageContext) -> Page | Redirect:
    """Issue licenses, and show their keys once; a form that is sent again leads to the licenses."""
    terms, count, slug = parse_terms(context.form), parse_count(context.form), context.from_form("product")
    keys: list[str] = []

    def issue_all(tx: Services, _: None) -> Redirect:
        for some in tx.licenses.issue_batches(slug, terms, count):
            keys.extend(some)
        if len(keys) == 1:
            return Redirect(f"/console/licenses/{tx.licenses.get(keys[0]).id.hex()}", "issued")
        return Redirect(with_query("/console/licenses", {"product": slug}), "issued")

    done = do_once(context, issue_all)
    if not keys:
        return done
    title = "License issued" if count == 1 else f"{number(count)} licenses issued"
    return Page("keys.html", title=title, keys=keys, link=done.to)


def show_customer(context: PageContext) -> Page:
    """Show the licenses and machines of an email address."""
    email = context.from_query("email")
    if not email:
        raise InvalidInputError("name the customer's email address")
    found = context.services.support.find_customer(email, context.after)
    return Page("customer.html", customer=found, further=context.further(found.cursor, email=email))


# --- actions on a license ---------------------------------------------------------------------


def _take_back(context: PageContext) -> Reply:
    effects = [
        "The app that holds it is notified when it next renews it; what it does then is its own decision.",
        "Somebody else can take the seat at once.",
    ]
    if question := context.ask(f"Take back the seat of {context.from_form('holder')}?", effects, "Take back"):
        return question
    context.services.seats.take_back(context.parts["id"], context.from_form("seat"))
    return context.back("taken-back")


def _revoke(context: PageContext) -> Reply:
    license_ = context.services.licenses.get(context.parts["id"])
    name, used = license_name(license_), license_.slots_used
    effects = [
        f"{name} for {license_.product_name}, of {license_.customer_email or 'a nameless customer'}.",
        f"It is activated on {used} {plural(used, 'machine')}.",
        "Verify and update checks are refused from now on, and download links stop working at once.",
        "You can reinstate it later.",
    ]
    if question := context.ask(f"Revoke {name}?", effects, f"Revoke {name}"):
        return question
    context.services.licenses.revoke(context.parts["id"], context.from_form("reason") or None)
    return context.back("revoked")


def _reissue(context: PageContext) -> Reply:
    """Replace the key, once that is confirmed, and show the new one."""
    license_ = context.services.licenses.get(context.parts["id"])
    name, used = license_name(license_), license_.slots_used
    effects = [
        "A new license with the same terms is issued, and its key is shown once.",
        f"{name} is revoked: verify and update checks with it are refused from now on.",
        f"It is activated on {used} {plural(used, 'machine')}.",
        "There the customer must enter the new key.",
    ]
    if question := context.ask(f"Replace the key {name}?", effects, "Replace the key"):
        return question
    keys: list[str] = []

    def replace_key(tx: Services, _: None) -> Redirect:
        new, key = tx.support.reissue(context.parts["id"])
        keys.append(key)
        return Redirect(f"/console/licenses/{new.id.hex()}", "reissued")

    done = do_once(context, replace_key)
    return Page("keys.html", title="New key", keys=keys, link=done.to) if keys else done


def _issue_file(context: PageContext) -> TextFile:
    days = read_number(context.from_form("days"), len(str(MAX_DAYS))) or 0
    issued = context.services.offline_files.issue(context.parts["id"], context.from_form("machine"), days)
    return TextFile(issued.name, issued.text)


def _free(context: PageContext) -> None:
    environment = Environment(context.from_form("domain"), context.from_form("ip"))
    context.services.licenses.free_slot(context.parts["id"], environment)


def _change(context: PageContext) -> None:
    """Change the terms that the form sends and that were edited in it."""
    changes, was = parse_changes(context.form)
    context.services.licenses.change(context.parts["id"], was=was, **changes)


def _convert(context: PageContext) -> None:
    last = parse_day(context.from_form("expires"))
    context.services.trials.convert(context.parts["id"], expires_on=last)


ACTIONS: Final[Actions] = {
    "free": act("freed", _free),
    "take-back": _take_back,
    "revoke": _revoke,
    "extend": once(act("extended", lambda c: c.services.support.extend(c.parts["id"]))),
    "slot": once(act("slot-added", lambda c: c.services.support.add_slot(c.parts["id"]))),
    "file": _issue_file,
    "reissue": _reissue,
    "reinstate": act("reinstated", lambda c: c.services.licenses.reinstate(c.parts["id"])),
    "change": act("changed", _change),
    "convert": act("converted", _convert),
    "allow": act("allowed", lambda c: c.services.licenses.allow(c.parts["id"], c.from_form("entry"))),
    "disallow": act(
        "disallowed", lambda c: c.services.licenses.disallow(c.parts["id"], c.from_form("entry"))
    ),
    "reveal": lambda c: show(c, key=c.services.licenses.reveal(c.parts["id"])),
}


# --- changes of many licenses at once, after a preview ----------------------------------------

_PICK: Final = "pick-"
_EFFECTS: Final = {
    "revoke": "Verify and update checks are refused from now on, and download links stop working at once.",
    "extend": "Each gets a year more: its last day, and the end of its support, as far as it has them.",
}


def change_many(context: PageContext) -> Reply:
    """Revoke, extend or export the licenses that are ticked, or all that match the search."""
    action, chosen = context.from_form("do"), _read_chosen(context)
    if not chosen:
        raise InvalidInputError("tick the licenses first")
    if action == "export":
        return licenses_csv("licenses", context, iter([chosen]))
    if action not in _EFFECTS:
        raise InvalidInputError("choose what to do with the licenses")
    if action == "extend":
        chosen = [one for one in chosen if one.support_until or (one.expires_on and not one.lifetime)]
        if not chosen:
            raise InvalidInputError("none of these licenses has a last day or an end of support")
    if question := _ask_for_many(context, action, chosen):
        return question

    def change_all(tx: Services, _: None) -> Redirect:
        for one in sorted(chosen, key=lambda one: one.id):  # in one order, so that no two deadlock
            if action == "revoke":
                tx.licenses.revoke(one.id.hex(), context.from_form("reason") or None)
            else:
                tx.support.extend(one.id.hex())
        return context.back("bulk-revoked" if action == "revoke" else "bulk-extended")

    return do_once(context, change_all)


def _ask_for_many(context: PageContext, action: str, chosen: Sequence[IssuedLicense]) -> Page | None:
    button = f"{action.capitalize()} {number(len(chosen))} {plural(len(chosen), 'license')}"
    effects = [_EFFECTS[action]]
    if context.from_form("all"):
        effects.append(f"These are the first {MAX_PAGE} that match, at most.")
    for one in chosen:
        name, who = license_name(one), one.customer_email or "no email address"
        effects.append(f"{name}, {one.product_name}, {who}: {describe(one, context.now).label}")
    form = {"do": action, "ids": " ".join(one.id.hex() for one in chosen), **context.typed("once", "sure")}
    again = context._replace(form=form)
    return again.ask(f"{button}?", effects, button, asks_reason=action == "revoke")


def _read_chosen(context: PageContext) -> list[IssuedLicense]:
    services = context.services.licenses
    if context.from_form("all"):
        return services.search(read_filter(context.form), None, MAX_PAGE).items
    picked = [name.removeprefix(_PICK) for name in context.form if name.startswith(_PICK)]
    ids = [one for one in [*picked, *context.from_form("ids").split()] if has_id_shape(one)]
    return services.get_all(ids[:MAX_PAGE])
