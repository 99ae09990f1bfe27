"""Licenses: search, a license's page, issuing, and bulk changes."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any, Final

from licserver.database.repositories.audit import AuditFilter
from licserver.domain.decisions import add_year, license_state
from licserver.domain.entitlements import format_grants
from licserver.domain.offers import latest_by_channel
from licserver.domain.offline_files import DEFAULT_DAYS, MAX_DAYS
from licserver.domain.records import STABLE, TERMS, Environment, IssuedLicense, LicenseState
from licserver.domain.text import find_reference, parse_key_part, plural
from licserver.errors import InvalidInputError
from licserver.security.redaction import contains_key
from licserver.services.installation import Services
from licserver.services.license_search import LicenseFilter, SortOrder
from licserver.services.lists import MAX_PAGE
from licserver.services.validation import has_id_shape
from licserver.shops.contract import Answer
from licserver.web.console.formatting import (
    FIELDS,
    day,
    describe,
    describe_updates,
    format_terms,
    is_touched,
    license_name,
    merge_channels,
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
    HtmlPage,
    PageContext,
    Redirect,
    Reply,
    TextFile,
    act,
    do_once,
    in_pages,
    list_plans,
    once,
    with_query,
)
from licserver.web.console.pages.audit import ACTIONS as AUDIT_ACTIONS
from licserver.web.console.pages.audit import describe_entry
from licserver.web.console.pages.sales import describe_sale, parse_problem_id

_SHOWN: Final = 50
_SEARCHED: Final = ("q", "product", "state", "trial", "shared", "from", "until", "order")
"""Names of the search's fields."""

ORDERS: Final = {
    SortOrder.NEWEST: "Newest first",
    SortOrder.OLDEST: "Oldest first",
    SortOrder.ENDING: "By last day, those that have one",
}
_FORMS: Final = (("slots", "change"), ("machine", "file"))
"""A field of each form that is folded up, and the name of the form."""

BULK_ACTIONS: Final = {"export": "Export as CSV", "extend": "Extend by a year …", "revoke": "Revoke …"}

_TERM_LABELS: Final = {
    "customer_email": "customer e-mail",
    "expires_on": "last day",
    "overrides": "entitlements instead",
    "subscription_id": "subscription",
}
"""Columns of the CSV file that are not called like the term."""


def _read_term(term: str) -> Callable[[IssuedLicense, datetime], Any]:
    """Return what makes the cell of a term."""

    def read(license_: IssuedLicense, _: datetime) -> Any:
        value = getattr(license_, term)
        if term == "slots" and value is None:
            return "unlimited"
        if term == "overrides":
            return ", ".join(format_grants(value))
        return ", ".join(value) if isinstance(value, tuple) else value

    return read


_COLUMNS: Final[Mapping[str, Callable[[IssuedLicense, datetime], Any]]] = {
    "id": lambda license_, _: license_.id.hex(),
    "product": lambda license_, _: license_.product_slug,
    "product name": lambda license_, _: license_.product_name,
    "state": lambda license_, now: describe(license_, now).label,
    "issued at": lambda license_, _: license_.issued_at,
    **{_TERM_LABELS.get(term, term.replace("_", " ")): _read_term(term) for term in TERMS},
    "slots used": lambda license_, _: license_.slots_used,
    "revoked at": lambda license_, _: license_.revoked_at,
    "revoked reason": lambda license_, _: license_.revoked_reason,
    "license key": lambda license_, _: license_name(license_),
}
"""The columns of the CSV file."""


def search(context: PageContext) -> HtmlPage:
    """Show the licenses that match the search."""
    fields = {name: context.from_query(name) for name in _SEARCHED}
    which = read_filter(context.query)
    page = context.services.licenses.search(which, context.after, _SHOWN)
    return HtmlPage(
        "licenses.html",
        licenses=page.items,
        search=fields,
        count=None if context.after else _count(context.services, which, len(page.items), page.cursor),
        orders=ORDERS,
        bulk_actions=BULK_ACTIONS,
        searched=any(fields.values()),
        products=context.services.products.list_all(),
        states=[state.value for state in LicenseState],
        further=context.further(page.cursor, **fields),
        export=with_query("/console/licenses.csv", fields),
    )


def find(context: PageContext) -> Redirect:
    """Redirect to the license of a pasted key or link, or to the list of all that match.

    The address never contains more of a key than a masked key shows.
    """
    typed = context.typed(*_SEARCHED)
    if (license_ := context.services.licenses.find_pasted(typed["q"])) is not None:
        return Redirect(f"/console/licenses/{license_.id.hex()}")
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
    rows = (
        [tuple(get(license_, context.now) for get in _COLUMNS.values()) for license_ in page]
        for page in pages
    )
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
        order=SortOrder(typed["order"]) if typed["order"] in ORDERS else SortOrder.NEWEST,
        trial={"yes": True, "no": False}.get(typed["trial"]),
        shared={"yes": True, "no": False}.get(typed["shared"]),
    )


def _count(services: Services, which: LicenseFilter, shown: int, cursor: str | None) -> str:
    """Format the number of licenses: exact, or with a plus sign for more."""
    if cursor is None:
        return f"{number(shown)} {plural(shown, 'license')}"
    count, is_more = services.licenses.count(which) or (shown, True)
    return f"{number(count)}{'+' if is_more else ''} licenses"


def show(context: PageContext, key: str | None = None) -> HtmlPage:
    """Show a license, with its key if it was just revealed."""
    services, reference = context.services, context.parts["id"]
    license_ = services.licenses.get(reference)
    held = services.licenses.list_activations(reference, context.after, _SHOWN)
    about = AuditFilter(object=("license", license_.id.hex()))
    product = services.products.get(license_.product_slug)
    shown, entitlements = format_terms(license_), services.plans.resolve(license_)
    sent = merge_channels(context.form)
    typed = {name: sent[name] for name in shown if is_touched(sent, name)}
    released = latest_by_channel(services.releases.list_all(product.slug))
    seats = services.seats.list_held(license_)
    repeatable = services.audit.count_today(license_.id)
    return HtmlPage(
        "license.html",
        seats=seats[:_SHOWN],
        seats_used=len(seats),
        license=license_,
        id=license_.id.hex(),
        name=license_name(license_),
        product=product,
        state=describe(license_, context.now),
        updates=describe_updates(license_, product, context.now),
        manual_changes=services.manual_changes.list_changes(license_),
        entitlements=format_grants(entitlements),
        uses=services.uses.list_current(license_.id, entitlements),
        activations=held.items,
        is_shared=services.licenses.is_shared(license_),
        further=context.further(held.cursor),
        history=[describe_entry(entry) for entry in services.audit.list_page(about, limit=20).items],
        today=[f"{AUDIT_ACTIONS[action]}: {count}" for action, count in repeatable.items()],
        key=key,
        refusals=services.support.list_refusals(license_),
        extended=_extended(license_, context.now.date()),
        fields=FIELDS,
        plans=[(product.name, [plan.name for plan in services.plans.list_all(product.slug)])],
        channels=sorted({*released, *license_.channels} - {STABLE}),
        is_mailable=services.mail.is_on
        and license_.customer_email is not None
        and license_state(license_, context.now) is LicenseState.ACTIVE,
        was=shown,
        form={**shown, **typed},
        machine=context.from_form("machine"),
        days=context.from_form("days") or DEFAULT_DAYS,
        max_days=MAX_DAYS,
        open=context.problem and next((name for field, name in _FORMS if field in context.form), ""),
        here=context.page,
    )


def _extended(license_: IssuedLicense, today: date) -> str | None:
    """Return the last day of a license after an extension, or of its support if it never expires."""
    end = license_.support_until if license_.lifetime else license_.expires_on or license_.support_until
    return None if end is None else day(add_year(end, today))


def export_activations(context: PageContext) -> Csv:
    """Export a license's activations."""
    reference = context.parts["id"]
    pages = in_pages(lambda cursor: context.services.licenses.list_activations(reference, cursor, MAX_PAGE))
    rows = ([(*activation.environment, *activation[1:]) for activation in page] for page in pages)
    columns = ("domain", "ip", "first seen", "last seen", "label", "app version", "file until")
    return Csv("activations", columns, rows)


def new(context: PageContext) -> HtmlPage:
    """Show the form for new licenses."""
    usual = {"slots": "1", "count": "1", "lifetime": "", "subscription": "", "mail": ""}
    sent, services = merge_channels(context.form), context.services
    sale = context.form.get("sale", "") or context.from_query("sale")
    sale_values = {"sale": sale, **describe_sale(services, parse_problem_id(sale))} if sale else {}
    sent = sent or sale_values
    names = (*(field.name for field in FIELDS), *usual, "sale")
    form = {name: sent.get(name, "") for name in names}
    products = services.products.list_all()
    released = (latest_by_channel(services.releases.list_all(product.slug)) for product in products)
    return HtmlPage(
        "issue.html",
        products=products,
        plans=list_plans(services, products),
        channels=sorted({name for by_channel in released for name in by_channel} - {STABLE}),
        chosen=sent.get("product", "") or context.from_query("product"),
        fields=FIELDS,
        has_mail=context.services.mail.is_on,
        form={name: text or usual.get(name, "") for name, text in form.items()},
    )


def issue(context: PageContext) -> HtmlPage | Redirect:
    """Issue licenses, and show their keys once; redirect a repeated form to the licenses."""
    terms, count, slug = parse_terms(context.form), parse_count(context.form), context.from_form("product")
    is_mailed, sale = bool(context.form.get("mail")), context.from_form("sale")
    keys: list[str] = []

    def issue_all(tx: Services, _: None) -> Redirect:
        if sale:
            tx.sale_problems.check_terms(terms)
            tx.sources.answer(parse_problem_id(sale), Answer.ISSUED)
        for batch in tx.licenses.issue_batches(slug, terms, count, is_mailed=is_mailed):
            keys.extend(batch)
        if len(keys) == 1:
            return Redirect(f"/console/licenses/{tx.licenses.get(keys[0]).id.hex()}", "issued")
        return Redirect(with_query("/console/licenses", {"product": slug}), "issued")

    done = do_once(context, issue_all)
    if not keys:
        return done
    title = "License issued" if count == 1 else f"{number(count)} licenses issued"
    return HtmlPage("keys.html", title=title, keys=keys, link=done.to)


def show_customer(context: PageContext) -> HtmlPage:
    """Show the licenses and machines of an email address."""
    email = context.from_query("email") or context.from_form("email")
    if not email:
        raise InvalidInputError("name the customer's email address")
    customer = context.services.support.find_customer(email, context.after)
    return HtmlPage("customer.html", customer=customer, further=context.further(customer.cursor, email=email))


def _export_customer(context: PageContext) -> Reply:
    """Send all data of a customer as a file."""
    document = context.services.personal_data.export(context.from_form("email"))
    text = json.dumps(document, indent=2, ensure_ascii=False)
    return TextFile(f"customer-{context.now:%Y-%m-%d}.json", f"{text}\n")


def _erase_customer(context: PageContext) -> Reply:
    """Erase the data of a customer after a confirmation."""
    email, keep = context.from_form("email"), bool(context.from_form("keep"))
    counts = context.services.personal_data.count(email)
    licenses = counts.get("licenses", 0)
    fate = (
        "The licenses work on, without a person."
        if keep
        else "The licenses are deleted; those that a shop has sold are revoked, and stay as numbers."
    )
    where = "in licenses, audit log, jobs, webhooks, mails and deliveries of shops"
    total = sum(counts.values())
    effects = [
        f"{number(total)} {plural(total, 'row')}, {number(licenses)} {plural(licenses, 'license')}, {where}.",
        fate,
        "It cannot be undone. Backups have the data until they are deleted; a restore erases it again.",
    ]
    page = context._replace(page=with_query(context.page, {"email": email}))
    if question := page.ask(f"Erase all data of {email}?", effects, "Erase"):
        return question
    context.services.personal_data.erase(email, keep_licenses=keep)
    return Redirect("/console/licenses", "customer-erased")


CUSTOMER_ACTIONS: Final[Actions] = {"export": _export_customer, "erase": _erase_customer}


# --- actions on a license ---------------------------------------------------------------------


def _take_back(context: PageContext) -> Reply:
    effects = [
        "The app that holds it is notified when it next renews it; what it does then is its own decision.",
        "The seat is free for another computer immediately.",
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
    """Replace the key after a confirmation, and show the new key."""
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
    return HtmlPage("keys.html", title="New key", keys=keys, link=done.to) if keys else done


def _issue_file(context: PageContext) -> TextFile:
    days = read_number(context.from_form("days"), len(str(MAX_DAYS))) or 0
    issued = context.services.offline_files.issue(context.parts["id"], context.from_form("machine"), days)
    return TextFile(issued.name, issued.text)


def _free(context: PageContext) -> None:
    environment = Environment(context.from_form("domain"), context.from_form("ip"))
    context.services.licenses.free_slot(context.parts["id"], environment)


def _change(context: PageContext) -> None:
    """Change the terms that were edited in the form."""
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
    "mail": once(act("key-mailed", lambda c: c.services.mail.resend_key(c.parts["id"]))),
    "reveal": lambda c: show(c, key=c.services.licenses.reveal(c.parts["id"])),
}


# --- changes of many licenses at once, after a preview ----------------------------------------

_PICK: Final = "pick-"
_EFFECTS: Final = {
    "revoke": "Verify and update checks are refused from now on, and download links stop working at once.",
    "extend": "Each gets a year more: its last day, and the end of its support, as far as it has them.",
}


def change_many(context: PageContext) -> Reply:
    """Revoke, extend or export the ticked licenses, or all licenses that match the search."""
    action, chosen = context.from_form("do"), _read_chosen(context)
    if not chosen:
        raise InvalidInputError("tick the licenses first")
    if action == "export":
        return licenses_csv("licenses", context, iter([chosen]))
    if action not in _EFFECTS:
        raise InvalidInputError("choose what to do with the licenses")
    if action == "extend":
        chosen = [
            license_
            for license_ in chosen
            if license_.support_until or (license_.expires_on and not license_.lifetime)
        ]
        if not chosen:
            raise InvalidInputError("none of these licenses has a last day or an end of support")
    if question := _ask_for_many(context, action, chosen):
        return question

    def change_all(tx: Services, _: None) -> Redirect:
        for license_ in sorted(
            chosen, key=lambda license_: license_.id
        ):  # sorted, so that transactions do not deadlock
            if action == "revoke":
                tx.licenses.revoke(license_.id.hex(), context.from_form("reason") or None)
            else:
                tx.support.extend(license_.id.hex())
        return context.back("bulk-revoked" if action == "revoke" else "bulk-extended")

    return do_once(context, change_all)


def _ask_for_many(context: PageContext, action: str, chosen: Sequence[IssuedLicense]) -> HtmlPage | None:
    button = f"{action.capitalize()} {number(len(chosen))} {plural(len(chosen), 'license')}"
    effects = [_EFFECTS[action]]
    if context.from_form("all"):
        effects.append(f"These are the first {MAX_PAGE} that match, at most.")
    for license_ in chosen:
        name, customer = license_name(license_), license_.customer_email or "no email address"
        effects.append(
            f"{name}, {license_.product_name}, {customer}: {describe(license_, context.now).label}"
        )
    form = {
        "do": action,
        "ids": " ".join(license_.id.hex() for license_ in chosen),
        **context.typed("once", "sure"),
    }
    again = context._replace(form=form)
    return again.ask(f"{button}?", effects, button, asks_reason=action == "revoke")


def _read_chosen(context: PageContext) -> list[IssuedLicense]:
    services = context.services.licenses
    if context.from_form("all"):
        return services.search(read_filter(context.form), None, MAX_PAGE).items
    picked = [name.removeprefix(_PICK) for name in context.form if name.startswith(_PICK)]
    ids = [id_ for id_ in [*picked, *context.from_form("ids").split()] if has_id_shape(id_)]
    return services.get_all(ids[:MAX_PAGE])
