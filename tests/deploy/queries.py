"""Names and labels that PromQL queries use, and the names of metrics that exist."""

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import promql_parser
import yaml

from streams.metrics.catalogue import PREFIX, PROCESS
from streams.metrics.routing import KNOWN
from tests.deploy.promtool import RULES

_SUFFIXES: Final = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


@cache
def exported() -> frozenset[str]:
    """Return the names of the series that workers, routers and intakes export."""
    own = {PREFIX + metric.name + suffix for metric in KNOWN.values() for suffix in _SUFFIXES[metric.kind]}
    return frozenset(own | set(PROCESS))


@cache
def rules() -> list[dict[str, Any]]:
    """Return all rules, in their order."""
    groups = [group for path in RULES for group in yaml.load(path.read_text(), yaml.CSafeLoader)["groups"]]
    return [rule for group in groups for rule in group["rules"]]


@cache
def recorded() -> frozenset[str]:
    """Return the names of the recording rules."""
    return frozenset(rule["record"] for rule in rules() if "record" in rule)


def selectors(query: str) -> list[tuple[str, set[str]]]:
    """Return the name and the labels matched of every selector in a query.

    Raises ValueError if it is not PromQL.
    """
    return [
        (node.name or "", {matcher.name for matcher in node.matchers.matchers})
        for node, _, _ in _found(promql_parser.parse(query))
    ]


def names(query: str) -> set[str]:
    """Return the names of the series that a query reads."""
    return {name for name, _ in selectors(query)}


def calls(query: str) -> list[tuple[str, str, str]]:
    """Return every selector's name, the innermost function it is an argument of, and the span it asks for, if any."""
    return [(node.name or "", function, span) for node, function, span in _found(promql_parser.parse(query))]


def _found(node: object, function: str = "", span: str = "") -> Iterator[tuple[promql_parser.VectorSelector, str, str]]:
    if isinstance(node, promql_parser.VectorSelector):
        yield node, function, span
    if isinstance(node, promql_parser.Call):
        function = node.func.name
    if isinstance(node, promql_parser.MatrixSelector):
        span = promql_parser.display_duration(node.range)
    for part in ("lhs", "rhs", "expr", "param", "vector_selector"):
        child = getattr(node, part, None)
        if child is not None:
            yield from _found(child, function, span)
    for argument in getattr(node, "args", None) or ():
        yield from _found(argument, function, span)
