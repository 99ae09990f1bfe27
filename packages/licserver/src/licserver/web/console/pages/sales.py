"""Problems of sales, each with the actions that solve it."""

import json
from typing import Final

from licserver.database.repositories.sales import Problem
from licserver.services import Services
from licserver.services.lists import MAX_PAGE
from licserver.shops.contract import Answer
from licserver.web.console.formatting import parse_number
from licserver.web.console.pages import Actions, HtmlPage, PageContext, act, list_plans, with_query
from licserver.web.console.pages.sources import parse_mapping

_SHOWN: Final = 50
_MAX_DIGITS: Final = 18  # fits 64 bits
LABELS: Final = {Answer.FOLLOW: "Do what the shop reports", Answer.LEAVE: "Leave it as it is"}


def show(context: PageContext) -> HtmlPage:
    """Show open problems, the latest first."""
    page = context.services.sale_problems.list_open(context.after, _SHOWN)
    return HtmlPage(
        "sales.html",
        problems=[
            (problem, _list_external_ids(problem), _list_answers(problem), _issue_link(problem))
            for problem in page.items
        ],
        products=(products := context.services.products.list_all()),
        plans=list_plans(context.services, products),
        further=context.further(page.cursor),
    )


def _list_external_ids(problem: Problem) -> list[str]:
    ids: list[str] = json.loads(problem.external_ids or "[]")
    return ids[:MAX_PAGE]


def _list_answers(problem: Problem) -> list[tuple[str, str]]:
    return [(answer, LABELS[Answer(answer)]) for answer in problem.answers.split()]


def _issue_link(problem: Problem) -> str:
    return with_query("/console/licenses/issue", {"sale": str(problem.id)})


def _find_id(context: PageContext) -> int:
    return parse_problem_id(context.from_form("problem"))


def parse_problem_id(text: str) -> int:
    """Parse the number of a problem."""
    return parse_number(text, "there is no such problem", _MAX_DIGITS)


def describe_sale(services: Services, problem_id: int) -> dict[str, str]:
    """Return the fields of the form that issues a license by hand, for the sale of a problem."""
    problem = services.sale_problems.get(problem_id)
    mapping, (kind, _, id_) = services.sale_problems.find_mapping(problem), problem.object.partition(":")
    email, language = services.sale_problems.find_customer(problem)
    fields = {"note": f"{kind.capitalize()} {id_} ({problem.source})"}
    fields |= {"email": email or "", "language": language or ""}
    if kind == "subscription":
        fields["subscription"] = id_
    if mapping is not None:
        fields |= {"product": mapping.product or "", "plan": mapping.plan or ""}
        fields["slots"] = "unlimited" if mapping.slots is None else str(mapping.slots)
        fields["seats"] = "" if mapping.floating_seats is None else str(mapping.floating_seats)
        fields["lifetime"] = "on" if mapping.lifetime else ""
    return fields


def _answer(context: PageContext) -> None:
    context.services.sources.answer(_find_id(context), context.from_form("answer"))


def _map(context: PageContext) -> None:
    external_id, slug = context.from_form("external_id"), context.from_form("product") or None
    context.services.sources.map_and_go_on(_find_id(context), external_id, slug, **parse_mapping(context))


ACTIONS: Final[Actions] = {"answer": act("sale-answered", _answer), "map": act("sale-mapped", _map)}
