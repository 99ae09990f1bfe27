"""Subscriptions and the audit log through the admin API."""

from licserver.errors import WrongUse
from licserver.model import Actor
from licserver.vendor import AuditFilter
from licserver.web.admin import shapes, showing
from licserver.web.admin.operations import READ, WRITE, Call, operation, page


@operation("GET", "/subscriptions", READ, query=shapes.Paging)
def list_subscriptions(call: Call) -> shapes.Page[shapes.Subscription]:
    """What licenses hang on, by id."""
    found = call.vendor.subscriptions(call.query.cursor, call.query.limit)
    return shapes.Page[shapes.Subscription](**page(found, showing.subscription))


@operation("GET", "/subscriptions/{id}", READ)
def get_subscription(call: Call) -> shapes.Subscription:
    """One subscription."""
    return showing.subscription(call.vendor.subscription(call.path["id"]))


@operation("POST", "/subscriptions/{id}/end", WRITE, body=shapes.Moment)
def end_subscription(call: Call) -> shapes.Subscription:
    """End a subscription, now or at an instant."""
    call.vendor.end_subscription(call.path["id"], call.body.at)
    return get_subscription(call)


@operation("POST", "/subscriptions/{id}/resume", WRITE)
def resume_subscription(call: Call) -> shapes.Subscription:
    """Take a subscription's end back."""
    call.vendor.resume_subscription(call.path["id"])
    return get_subscription(call)


@operation("GET", "/audit", READ, query=shapes.AuditQuery)
def list_audit(call: Call) -> shapes.Page[shapes.AuditLine]:
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
    found = call.vendor.audit(which, query.cursor, query.limit)
    return shapes.Page[shapes.AuditLine](**page(found, showing.line))
