"""Products and releases through the admin API; the file of a new release is received in `gate`."""

from licserver.services import page_of
from licserver.web.admin import schemas, serialization
from licserver.web.admin.operations import READ, WRITE, Call, operation, page


@operation("GET", "/products", READ, query=schemas.Paging)
def list_products(call: Call) -> schemas.Page[schemas.Product]:
    """All products, by slug."""
    found = page_of(
        call.services.products.list_all(), lambda one: one.slug, call.query.cursor, call.query.limit
    )
    return schemas.Page[schemas.Product](**page(found, serialization.product))


@operation("POST", "/products", WRITE, body=schemas.NewProduct, creates=True)
def add_product(call: Call) -> schemas.Product:
    """Add a product."""
    new = call.body
    return serialization.product(
        call.services.products.add(new.slug, new.name, new.environment, has_support_policy=new.support_policy)
    )


@operation("GET", "/products/{slug}", READ)
def get_product(call: Call) -> schemas.Product:
    """One product."""
    return serialization.product(call.services.products.get(call.path["slug"]))


@operation("PATCH", "/products/{slug}", WRITE, body=schemas.ProductChange)
def change_product(call: Call) -> schemas.Product:
    """Change what is said of a product."""
    wanted = {name: getattr(call.body, name) for name in call.body.model_fields_set}
    return serialization.product(
        call.services.products.change(
            call.path["slug"],
            name=wanted.get("name"),
            policy=wanted.get("environment"),
            has_support_policy=wanted.get("support_policy"),
        )
    )


@operation("GET", "/products/{slug}/releases", READ, query=schemas.Paging)
def list_releases(call: Call) -> schemas.Page[schemas.Release]:
    """A product's releases, the latest first."""
    releases = call.services.releases.list_all(call.path["slug"])[::-1]
    found = page_of(releases, lambda one: one.version, call.query.cursor, call.query.limit)
    return schemas.Page[schemas.Release](**page(found, serialization.release))


@operation("GET", "/products/{slug}/releases/{version}", READ)
def get_release(call: Call) -> schemas.Release:
    """One release."""
    return serialization.release(call.services.releases.get(call.path["slug"], call.path["version"]))


@operation("POST", "/products/{slug}/releases/{version}/withdraw", WRITE)
def withdraw_release(call: Call) -> schemas.Release:
    """Take a release back; links to it are dead."""
    return serialization.release(call.services.releases.withdraw(call.path["slug"], call.path["version"]))
