"""Subscriptions and the audit log through the admin API."""

from licserver.domain.records import Actor
from licserver.errors import WrongUse
from licserver.services import AuditFilter
from licserver.web.admin import schemas, serialization
from licserver.web.admin.operations import READ, WRITE, Call, operation, page


@operation("GET", "/subscriptions", READ, query=schemas.Paging)
def list_subscriptions(call: Call) -> schemas.Page[schemas.Subscription]:
    """What licenses hang on, by id."""
    found = call.services.subscriptions.list_page(call.query.cursor, call.query.limit)
    return schemas.Page[schemas.Subscription](**page(found, serialization.subscription))


@operation("GET", "/subscriptions/{id}", READ)
def get_subscription(call: Call) -> schemas.Subscription:
    """One subscription."""
    return serialization.subscription(call.services.subscriptions.get(call.path["id"]))


@operation("POST", "/subscriptions/{id}/end", WRITE, body=schemas.InstantRequest)
def end_subscription(call: Call) -> schemas.Subscription:
    """End a subscription, now or at an instant."""
    call.services.subscriptions.end(call.path["id"], call.body.at)
    return get_subscription(call)


@operation("POST", "/subscriptions/{id}/resume", WRITE)
def resume_subscription(call: Call) -> schemas.Subscription:
    """Take a subscription's end back."""
    call.services.subscriptions.resume(call.path["id"])
    return get_subscription(call)


@operation("GET", "/audit", READ, query=schemas.AuditQuery)
def list_audit(call: Call) -> schemas.Page[schemas.AuditLine]:
    """The audit log, the newest line first."""
    query = call.query
    if (query.object_kind is None) != (query.object_id is None):
        raise WrongUse("object_kind and object_id go together")
    if (query.actor_kind is None) != (query.actor_name is None):
        raise WrongUse("actor_kind and actor_name go together")
    which = AuditFilter(
        object=None if query.object_kind is None else (query.object_kind, query.object_id),
        actor=None if query.actor_kind is None else Actor(query.actor_kind, query.actor_name),
        since=query.since,
        until=query.until,
    )
    found = call.services.audit.list_page(which, query.cursor, query.limit)
    return schemas.Page[schemas.AuditLine](**page(found, serialization.line))
