"""What PromQL asks for: names of metrics and their labels, and the names that there are."""

from functools import cache
from typing import Any, Final

import promql_parser
import yaml

from streams.catalogue import CATALOGUE, PROCESS
from streams.gauges import PREFIX
from tests.deploy.promtool import RULES

_SUFFIXES: Final = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


@cache
def exported() -> frozenset[str]:
    """Return the names of the series a worker exports."""
    own = {PREFIX + metric.name + suffix for metric in CATALOGUE.values() for suffix in _SUFFIXES[metric.kind]}
    return frozenset(own | set(PROCESS))


def rules() -> list[dict[str, Any]]:
    """Return all rules, in their order."""
    groups = [group for path in RULES for group in yaml.safe_load(path.read_text())["groups"]]
    return [rule for group in groups for rule in group["rules"]]


@cache
def recorded() -> frozenset[str]:
    """Return the names that recording rules make."""
    return frozenset(rule["record"] for rule in rules() if "record" in rule)


def selectors(query: str) -> list[tuple[str, set[str]]]:
    """Return the name and the labels matched of every selector in a query.

    Raises
    ------
    ValueError
        If it is not PromQL.
    """
    found: list[tuple[str, set[str]]] = []

    def visit(node: object) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            found.append((node.name or "", {matcher.name for matcher in node.matchers.matchers}))
        for part in ("lhs", "rhs", "expr", "param", "vector_selector"):
            child = getattr(node, part, None)
            if child is not None:
                visit(child)
        for argument in getattr(node, "args", None) or ():
            visit(argument)

    visit(promql_parser.parse(query))
    return found


def names(query: str) -> set[str]:
    """Return the names a query asks for."""
    return {name for name, _ in selectors(query)}
