"""Reports of a run: JUnit XML, one page of HTML, and a badge (SVG)."""

import html
from collections import Counter
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from licconform.cases import Kind, printable
from licconform.runner import BAD, Outcome, Result

_COLORS = {
    Outcome.PASSED: "#2da44e",
    Outcome.FAILED: "#cf222e",
    Outcome.UNEXPECTED_PASS: "#cf222e",
    Outcome.EXPECTED_FAILURE: "#9a6700",
    Outcome.SKIPPED: "#6e7781",
}


def format_summary(results: Sequence[Result]) -> str:
    """Return the line `literal 70/71, reading 40/40`: passed of those that were not skipped, by kind."""
    ran = [result for result in results if result.outcome is not Outcome.SKIPPED]
    parts = []
    for kind in Kind:
        outcomes = Counter(result.outcome for result in ran if result.case.kind is kind)
        if outcomes:
            parts.append(f"{kind} {outcomes[Outcome.PASSED]}/{outcomes.total()}")
    return ", ".join(parts) or "nothing was run"


def format_junit(title: str, results: Sequence[Result]) -> bytes:
    """Return JUnit XML; the section is the class name, so that viewers group by it."""
    count = Counter(result.outcome for result in results)
    suite = ET.Element(
        "testsuite",
        name=title,
        tests=str(len(results)),
        failures=str(sum(count[outcome] for outcome in BAD)),
        errors="0",
        skipped=str(count[Outcome.SKIPPED] + count[Outcome.EXPECTED_FAILURE]),
        time=f"{sum(result.seconds for result in results):.3f}",
    )
    for result in results:
        case = result.case
        element = ET.SubElement(
            suite,
            "testcase",
            name=case.name,
            classname=f"{case.kind}.{case.section.replace('.', '_')}",
            time=f"{result.seconds:.3f}",
        )
        message = printable(result.message)
        if result.outcome in BAD:
            ET.SubElement(element, "failure", message=case.rule).text = message
        elif result.outcome is not Outcome.PASSED:
            ET.SubElement(element, "skipped", message=message)
    root = ET.Element("testsuites")
    root.append(suite)
    content: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return content


def format_html(title: str, results: Sequence[Result]) -> str:
    """Return a page with a table for each kind of rule."""
    tables = "".join(_format_table(kind, results) for kind in Kind)
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{html.escape(title)}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem }}
table {{ border-collapse: collapse; width: 100% }}
td, th {{ border-bottom: 1px solid #d0d7de; padding: .3rem .6rem; text-align: left; vertical-align: top }}
pre {{ margin: .3rem 0 0; white-space: pre-wrap; overflow-wrap: anywhere }}
code, td:nth-child(-n + 2) {{ white-space: nowrap }}
</style>
<h1>{html.escape(title)}</h1>
<p>{html.escape(format_summary(results))}</p>
{tables}</html>
"""


def _format_table(kind: Kind, results: Sequence[Result]) -> str:
    rows = "".join(_format_row(result) for result in results if result.case.kind is kind)
    if not rows:
        return ""
    head = "<tr><th>Outcome<th>Section<th>Case<th>Rule</tr>"
    return f"<h2>{kind.capitalize()} rules</h2>\n<table>{head}\n{rows}</table>\n"


def _format_row(result: Result) -> str:
    case = result.case
    message = f"<pre>{html.escape(printable(result.message))}</pre>" if result.message else ""
    color = _COLORS[result.outcome]
    return (
        f'<tr><td style="color:{color}">{result.outcome}<td>{html.escape(case.section)}'
        f"<td><code>{html.escape(case.name)}</code><td>{html.escape(case.rule)}{message}</tr>\n"
    )


def format_badge(results: Sequence[Result]) -> str:
    """Return a badge that shows the summary: green if all is as it should be, else red."""
    label, text = "conformance", format_summary(results)
    passed = any(result.outcome is Outcome.PASSED for result in results)
    good = passed and not any(result.outcome in BAD for result in results)
    color = _COLORS[Outcome.PASSED if good else Outcome.FAILED]
    left, right = 7 * len(label) + 10, 7 * len(text) + 10
    return f"""<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" \
aria-label="{label}: {text}"><title>{label}: {text}</title>
<rect width="{left + right}" height="20" rx="3" fill="#555"/>
<rect x="{left}" width="{right}" height="20" rx="3" fill="{color}"/>
<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">
<text x="{left / 2}" y="14">{label}</text><text x="{left + right / 2}" y="14">{text}</text></g></svg>
"""
