"""The ``when`` of a mapping: which records of a topic are the source's."""

from collections.abc import Callable
from typing import Any

from streams.sources.references import Envelope, Read, text
from streams.sources.specs import Spec, only

Passes = Callable[[Any, Envelope], bool]


def compiled(table: Spec, reference: Callable[[Spec], Read]) -> Passes | None:
    """Return what says whether a record is one of the source; None where all are.

    Raises ValueError if it is no table of filters.

    ``table``: by reference, what is wanted there: a value, one of a list, or a table of ``not``, ``exists``, ``min``,
      ``max``.
    ``reference``: compiles references.
    """
    if table is None:
        return None
    if not isinstance(table, dict):
        raise ValueError('when is a table such as { type = "score", status = ["final", "settled"] }')  # noqa: TRY004 - one kind of error for configuration
    tests = [(reference(path), _test(path, wanted)) for path, wanted in table.items()]

    def passes(record: Any, envelope: Envelope) -> bool:  # noqa: ANN401 - whatever stands there
        return all(test(read(record, envelope)) for read, test in tests)

    return passes


def _test(path: str, wanted: Spec) -> Callable[[Any], bool]:
    """Return a test of a value: equal to one value, or to one of several; or a table of tests."""
    if not isinstance(wanted, dict):
        among = wanted if isinstance(wanted, list) else [wanted]
        if not all(type(one) in (str, int, float, bool) for one in among):
            raise ValueError(f"when: {path} is compared with text, numbers or truth values, got {wanted!r}")
        known = {_compared(one) for one in among}
        return lambda found: _compared(found) in known
    tests = [_named(path, name, given) for name, given in only(wanted, "not", "exists", "min", "max").items()]
    return lambda found: all(test(found) for test in tests)


def _named(path: str, name: str, given: Spec) -> Callable[[Any], bool]:
    if name == "not":
        same = _test(path, given)
        return lambda found: not same(found)
    if name == "exists":
        if type(given) is not bool:
            raise ValueError(f"when: exists of {path} is true or false, got {given!r}")
        return lambda found: (found is not None) is given
    if type(given) not in (int, float):
        raise ValueError(f"when: {name} of {path} is a number, got {given!r}")
    sign = 1 if name == "min" else -1
    return lambda found: type(found) in (int, float) and sign * found >= sign * given


def _compared(value: Any) -> object:  # noqa: ANN401 - whatever stands there
    """Return what a value is compared by: numbers by value, all else by its text, so that true is not 1."""
    if type(value) in (int, float):
        return value
    return text(value)
