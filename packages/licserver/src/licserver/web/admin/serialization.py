"""Records as response models of the admin API."""

from licserver.database.repositories.audit import Entry
from licserver.database.repositories.licenses import Activation, IssuedLicense
from licserver.database.repositories.subscriptions import Subscription
from licserver.domain.decisions import license_state, mask_key
from licserver.domain.records import Product, Release
from licserver.errors import VaultError
from licserver.services import Services
from licserver.web.admin import schemas


def product(one: Product) -> schemas.Product:
    """Serialize a product."""
    return schemas.Product(
        slug=one.slug,
        name=one.name,
        environment=one.policy,
        support_policy=one.has_support_policy,
        latest=one.latest.version if one.latest else None,
    )


def release(one: Release) -> schemas.Release:
    """Serialize a release."""
    return schemas.Release(
        version=one.version,
        published_at=one.published_at,
        withdrawn_at=one.withdrawn_at,
        file_name=one.artifact.file_name,
        size=one.artifact.size,
        sha256=one.artifact.sha256.hex(),
        signed=one.manifest is not None,
        changelog=one.changelog,
    )


def license_(one: IssuedLicense, services: Services) -> schemas.License:
    """Serialize a license with its key masked; an unreadable key does not fail a whole list."""
    try:
        masked = mask_key(services.licenses.decrypt_key(one))
    except VaultError:
        masked = "unreadable"
    return schemas.License(
        id=one.id.hex(),
        masked_key=masked,
        product=one.product_slug,
        product_name=one.product_name,
        state=license_state(one, services.now()),
        issued_at=one.issued_at,
        expires_on=one.expires_on,
        lifetime=one.lifetime,
        revoked_at=one.revoked_at,
        revoked_reason=one.revoked_reason,
        slots=one.slots,
        slots_used=one.slots_used,
        allowed=one.allowed,
        subscription=one.subscription_id,
        subscription_ended_at=one.subscription_ended_at,
        support_until=one.support_until,
        customer_email=one.customer_email,
        note=one.note,
    )


def activation(one: Activation) -> schemas.Activation:
    """Serialize an activation."""
    return schemas.Activation(
        domain=one.environment.domain,
        ip=one.environment.ip,
        activated_at=one.activated_at,
        last_seen_at=one.last_seen_at,
    )


def subscription(one: Subscription) -> schemas.Subscription:
    """Serialize a subscription."""
    return schemas.Subscription(id=one.id, licenses=one.licenses, ended_at=one.ended_at)


def line(one: Entry) -> schemas.AuditLine:
    """Serialize an entry of the audit log."""
    return schemas.AuditLine(
        id=one.id,
        at=one.at,
        actor_kind=one.actor.kind,
        actor_name=one.actor.name,
        action=one.action,
        object_kind=one.object_kind,
        object_id=one.object_id,
        details=one.details,
    )
