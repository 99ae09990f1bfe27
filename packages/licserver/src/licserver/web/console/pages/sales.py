"""Problems of sales, each with the actions that solve it."""

import json
from typing import Any, Final

from licserver.database.repositories.sales import Problem, SourceMapping
from licserver.services.installation import Services
from licserver.services.lists import MAX_PAGE
from licserver.services.sales.problems import UNREADABLE, list_answers
from licserver.shops.contract import MAPPABLE, Answer
from licserver.web.console.formatting import FIELDS, parse_number
from licserver.web.console.pages import Actions, HtmlPage, PageContext, Redirect, act, list_plans, with_query
from licserver.web.console.pages.sources import parse_mapped_product, parse_mapping

_SHOWN: Final = 50
_LINKED: Final = 3  # licenses of a sale
_MAX_DIGITS: Final = 18  # fits 64 bits
_FIELDS: Final = {
    **{field.term: field.name for field in FIELDS},
    "product": "product",
    "lifetime": "lifetime",
    "subscription_id": "subscription",
}
"""Names of the inputs of the form that issues a license, by what `ProblemService.find_terms` returns."""

LABELS: Final = {Answer.FOLLOW: "Do what the shop reports", Answer.LEAVE: "Leave it as it is"}


def show(context: PageContext) -> HtmlPage:
    """Show open problems, the latest first."""
    page = context.services.sale_problems.list_open(context.after, _SHOWN)
    return HtmlPage(
        "sales.html",
        unreadable=UNREADABLE,
        problems=[
            (
                problem,
                _list_external_ids(problem),
                _describe_mapping(context.services.sale_problems.find_mapping(problem)),
                _list_answers(problem),
                _issue_link(problem),
                context.services.sale_problems.list_licenses(problem, _LINKED),
            )
            for problem in page.items
        ],
        products=(products := context.services.products.list_all()),
        plans=list_plans(context.services, products),
        further=context.further(page.cursor),
    )


def _list_external_ids(problem: Problem) -> list[str]:
    """Return the ids of which one is to be mapped; none where a mapping solves nothing."""
    if problem.kind not in MAPPABLE:
        return []
    ids: list[str] = json.loads(problem.external_ids or "[]")
    return ids[:MAX_PAGE]


def _describe_mapping(mapping: SourceMapping | None) -> dict[str, str]:
    """Return the fields of the form that maps, as they are mapped now; so that it adds what is missing."""
    fields = {"external_id": "", "product": "", "slots": "1", "expires_in": "", "support": ""}
    fields |= {"lifetime": "", "plan": "", "seats": ""}
    if mapping is None:
        return fields
    names = {"seats": "floating_seats"}
    return {
        field: _format(name, getattr(mapping, name)) for field in fields if (name := names.get(field, field))
    }


def _list_answers(problem: Problem) -> list[tuple[str, str]]:
    answers = map(Answer, list_answers(problem))
    return [(answer, LABELS[answer]) for answer in answers if answer in LABELS]


def _issue_link(problem: Problem) -> str:
    """Return the link to the form that issues a license; empty if none can be missing."""
    is_issuable = Answer.ISSUED in list_answers(problem)
    return with_query("/console/licenses/issue", {"sale": str(problem.id)}) if is_issuable else ""


def _find_id(context: PageContext) -> int:
    return parse_problem_id(context.from_form("problem"))


def parse_problem_id(text: str) -> int:
    """Parse the number of a problem."""
    return parse_number(text, "there is no such problem", _MAX_DIGITS)


def describe_sale(services: Services, problem_id: int) -> dict[str, str]:
    """Return the fields of the form that issues a license by hand, for the sale of a problem."""
    problems = services.sale_problems
    problem = problems.get(problem_id)
    terms, quantity = problems.find_terms(problem), problems.find_quantity(problem)
    fields = {field: _format(name, terms[name]) for name, field in _FIELDS.items() if name in terms}
    return fields | ({} if quantity is None else {"count": str(quantity)})


def _format(name: str, value: Any) -> str:
    match value:
        case None:
            return "unlimited" if name == "slots" else ""
        case bool():
            return "on" if value else ""
        case _:
            return str(value)


def _answer(context: PageContext) -> Redirect:
    answer = context.from_form("answer")
    context.services.sources.answer(_find_id(context), answer)
    return context.back("sale-left" if answer == Answer.LEAVE else "sale-answered")


def _map(context: PageContext) -> None:
    external_id, slug = context.from_form("external_id"), parse_mapped_product(context)
    context.services.sources.map_and_go_on(_find_id(context), external_id, slug, **parse_mapping(context))


ACTIONS: Final[Actions] = {"answer": _answer, "map": act("sale-mapped", _map)}
