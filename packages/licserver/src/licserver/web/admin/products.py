"""Products and releases through the admin API; the file of a new release is received in `gate`."""

from licserver.vendor import page_of
from licserver.web.admin import shapes, showing
from licserver.web.admin.operations import READ, WRITE, Call, operation, page


@operation("GET", "/products", READ, query=shapes.Paging)
def list_products(call: Call) -> shapes.Page[shapes.Product]:
    """All products, by slug."""
    found = page_of(call.vendor.products(), lambda one: one.slug, call.query.cursor, call.query.limit)
    return shapes.Page[shapes.Product](**page(found, showing.product))


@operation("POST", "/products", WRITE, body=shapes.NewProduct, creates=True)
def add_product(call: Call) -> shapes.Product:
    """Add a product."""
    new = call.body
    return showing.product(
        call.vendor.add_product(new.slug, new.name, new.environment, has_support_policy=new.support_policy)
    )


@operation("GET", "/products/{slug}", READ)
def get_product(call: Call) -> shapes.Product:
    """One product."""
    return showing.product(call.vendor.product(call.path["slug"]))


@operation("PATCH", "/products/{slug}", WRITE, body=shapes.ProductChange)
def change_product(call: Call) -> shapes.Product:
    """Change what is said of a product."""
    wanted = {name: getattr(call.body, name) for name in call.body.model_fields_set}
    return showing.product(
        call.vendor.change_product(
            call.path["slug"],
            name=wanted.get("name"),
            policy=wanted.get("environment"),
            has_support_policy=wanted.get("support_policy"),
        )
    )


@operation("GET", "/products/{slug}/releases", READ, query=shapes.Paging)
def list_releases(call: Call) -> shapes.Page[shapes.Release]:
    """A product's releases, the latest first."""
    releases = call.vendor.releases(call.path["slug"])[::-1]
    found = page_of(releases, lambda one: one.version, call.query.cursor, call.query.limit)
    return shapes.Page[shapes.Release](**page(found, showing.release))


@operation("GET", "/products/{slug}/releases/{version}", READ)
def get_release(call: Call) -> shapes.Release:
    """One release."""
    return showing.release(call.vendor.release(call.path["slug"], call.path["version"]))


@operation("POST", "/products/{slug}/releases/{version}/withdraw", WRITE)
def withdraw_release(call: Call) -> shapes.Release:
    """Take a release back; links to it are dead."""
    return showing.release(call.vendor.withdraw(call.path["slug"], call.path["version"]))
