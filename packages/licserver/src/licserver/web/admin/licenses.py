"""Licenses and their activations through the admin API."""

from licserver.database.repositories.licenses import IssuedLicense
from licserver.domain.decisions import has_key_shape
from licserver.domain.records import LicenseTerms
from licserver.errors import WrongUse
from licserver.services import LicenseFilter
from licserver.services import Page as VendorPage
from licserver.web.admin import schemas, serialization
from licserver.web.admin.operations import READ, WRITE, Call, operation, page


@operation("GET", "/licenses", READ, query=schemas.LicenseQuery)
def list_licenses(call: Call) -> schemas.Page[schemas.License]:
    """Licenses, filtered and searched."""
    query = call.query
    if has_key_shape((query.q or "").strip().upper()):
        raise WrongUse("a whole key goes to licenses/lookup: addresses are logged on their way")
    which = LicenseFilter(
        query.q, query.product, query.subscription, query.state, query.expires_from, query.expires_until
    )
    return _licenses(call, call.services.licenses.search(which, query.cursor, query.limit))


@operation("POST", "/licenses", WRITE, body=schemas.NewLicense, creates=True)
def issue_license(call: Call) -> schemas.IssuedLicense:
    """Issue a license; the answer holds its key."""
    new = call.body
    terms = LicenseTerms(
        slots=new.slots,
        expires_on=new.expires_on,
        lifetime=new.lifetime,
        support_until=new.support_until,
        subscription_id=new.subscription,
        allowed=new.allowed,
        customer_email=new.customer_email,
        note=new.note,
    )
    license_, key = call.services.licenses.issue(new.product, terms)
    return schemas.IssuedLicense(**_license(call, license_).model_dump(), license_key=key)


@operation("POST", "/licenses/lookup", READ, body=schemas.LicenseKey)
def look_up_license(call: Call) -> schemas.License:
    """The license of a whole key."""
    return _license(call, call.services.licenses.get(call.body.license_key))


@operation("GET", "/licenses/{id}", READ)
def get_license(call: Call) -> schemas.License:
    """One license."""
    return _license(call, call.services.licenses.get(call.license_id))


@operation("PATCH", "/licenses/{id}", WRITE, body=schemas.LicenseChange)
def change_license(call: Call) -> schemas.License:
    """Change what is agreed about a license."""
    wanted = {name: getattr(call.body, name) for name in call.body.model_fields_set}
    return _license(call, call.services.licenses.change(call.license_id, **wanted))


@operation("POST", "/licenses/{id}/revoke", WRITE, body=schemas.Reason)
def revoke_license(call: Call) -> schemas.License:
    """Revoke a license."""
    return _license(call, call.services.licenses.revoke(call.license_id, call.body.reason))


@operation("POST", "/licenses/{id}/reinstate", WRITE)
def reinstate_license(call: Call) -> schemas.License:
    """Take a revocation back."""
    return _license(call, call.services.licenses.reinstate(call.license_id))


@operation("POST", "/licenses/{id}/reveal", WRITE)
def reveal_license_key(call: Call) -> schemas.RevealedKey:
    """A license's whole key; noted in the audit log."""
    return schemas.RevealedKey(license_key=call.services.licenses.reveal(call.license_id))


@operation("GET", "/licenses/{id}/activations", READ, query=schemas.Paging)
def list_activations(call: Call) -> schemas.Page[schemas.Activation]:
    """A license's activations, by domain."""
    found = call.services.licenses.list_activations(call.license_id, call.query.cursor, call.query.limit)
    return schemas.Page[schemas.Activation](**page(found, serialization.activation))


@operation("POST", "/licenses/{id}/deactivate", WRITE, body=schemas.EnvironmentRequest)
def free_slots(call: Call) -> schemas.FreedSlots:
    """Free the slots of a domain or an address."""
    return schemas.FreedSlots(freed=call.services.licenses.deactivate(call.license_id, call.body.environment))


@operation("GET", "/products/{slug}/releases/{version}/licenses", READ, query=schemas.Paging)
def list_downloaders(call: Call) -> schemas.Page[schemas.License]:
    """Who may still download a release."""
    slug, version = call.path["slug"], call.path["version"]
    found = call.services.licenses.list_entitled(slug, version, call.query.cursor, call.query.limit)
    return _licenses(call, found)


def _license(call: Call, license_: IssuedLicense) -> schemas.License:
    return serialization.license_(license_, call.services)


def _licenses(call: Call, found: VendorPage[IssuedLicense]) -> schemas.Page[schemas.License]:
    return schemas.Page[schemas.License](**page(found, lambda one: _license(call, one)))
