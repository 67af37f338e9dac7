"""Names, options and compositions."""

from pathlib import Path

import pytest

from state.calibrators import MAX_FEATURES, REGISTRY, VECTORS, check, kind, make

PAGE = Path(__file__).resolve().parents[3] / "docs" / "explanation" / "calibrators.md"


@pytest.mark.parametrize("spec", [*REGISTRY, *VECTORS])
def test_made_calibrator_has_the_name_it_was_made_by(spec: str) -> None:
    check(spec, {})
    assert make(spec).name == spec


@pytest.mark.parametrize("spec", ["", "plat", "platt+", "+minimax", "+".join(["platt"] * 5), "platt + minimax"])
def test_unknown_name_says_what_is_allowed(spec: str) -> None:
    with pytest.raises(ValueError, match="allowed: one of " + ", ".join(sorted(REGISTRY))):
        check(spec, {})


@pytest.mark.parametrize(
    ("spec", "options", "says"),
    [
        ("minimax", {"grids": 5}, r"no option 'grids'; allowed: grid \(an integer from 1 to 1000\), spacing"),
        ("identity", {"grid": 5}, "no option 'grid'; it has none"),
        ("platt+minimax", {"features": 2}, "no option 'features'; allowed: halflife"),
        ("minimax", {"grid": 0}, "grid must be an integer from 1 to 1000"),
        ("minimax", {"grid": 2.0}, "got 2.0"),
        ("minimax", {"grid": True}, "got True"),
        ("calibrated_regression", {"features": MAX_FEATURES + 1}, "features must be an integer from 0 to 64"),
        ("multiclass", {"each": "quantile"}, "unknown calibrator 'quantile'"),
        ("multiclass", {"each": 3}, "each must be a text"),
        ("multiclass", {"each": "platt", "grid": 7}, "no option 'grid'; allowed: classes"),
        ("multiclass", {"classes": 1}, "classes must be an integer from 2 to 100"),
        ("quantile", {"levels": [0.5]}, "levels must be 2 to 256 increasing numbers between 0 and 1"),
        ("quantile", {"levels": [0.9, 0.1]}, "levels must be"),
        ("quantile", {"link": "probit"}, "link must be one of identity, logit"),
        ("quantile", {"low": 5, "high": 1}, "low must be below high, got 5 and 1"),
        ("quantile", {"grid": 7}, "no option 'grid'; allowed: levels"),
        ("platt+quantile", {}, "of other forecasts, which stand alone: multiclass, quantile"),
    ],
)
def test_unknown_option_says_what_is_allowed(spec: str, options: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        check(spec, options)
    with pytest.raises(ValueError, match=says):
        make(spec, **options)  # type: ignore[arg-type]  # options of any type, none of them name or seed


def test_kind_of_each_calibrator() -> None:
    assert [kind(spec) for spec in ("platt+minimax", "multiclass", "quantile")] == ["p", "probs", "quantiles"]
    with pytest.raises(ValueError, match="unknown calibrator 'plat'"):
        kind("plat")


def test_option_reaches_the_part_that_names_it() -> None:
    assert make("platt+minimax", grid=7, spacing="uniform").predict(0.2).p == pytest.approx(1 / 7)
    composed = make("calibrated_regression+minimax", grid=7, spacing="uniform", features=3)
    assert composed.predict(0.2, (0.0, 0.0, 0.0)).p == pytest.approx(1 / 7)


def test_refused_outcome_teaches_neither_part() -> None:
    composed = make("platt+minimax")
    before = composed.encode()
    with pytest.raises(ValueError, match="y must be 0 or 1"):
        composed.update(composed.predict(0.9).ticket, 0.5)
    assert composed.encode() == before


def test_parts_of_a_chain_answer_in_order() -> None:
    chain, parts = (
        make("platt+histogram+minimax", name="s"),
        [make(part, name="s") for part in ("platt", "histogram")],
    )
    back = make("minimax", name="s")
    for t in range(300):
        p, tickets = 0.1 + 0.8 * (t % 7) / 6, []
        answer = chain.predict(p, (), b"%d" % t)
        for part in parts:
            p, _, ticket = part.predict(p)
            tickets.append(ticket)
        served, expected, ticket = back.predict(p, (), b"%d" % t)
        assert answer[:2] == (served, expected)
        chain.update(answer.ticket, t % 3 == 0)
        for part, issued in zip([*parts, back], [*tickets, ticket], strict=True):
            part.update(issued, t % 3 == 0)


def test_every_part_of_a_chain_draws_by_its_own_key() -> None:
    chain = make("minimax+minimax+minimax", name="s")
    pair = make("minimax+minimax", name="s")
    draws = [chain.front._draw, chain.back.front._draw, chain.back.back._draw]
    assert len({draw(b"e") for draw in draws}) == 3
    assert [draw(b"e") for draw in draws[1:]] == [pair.front._draw(b"e"), pair.back._draw(b"e")]


def test_the_page_says_when_to_use_each_calibrator() -> None:
    table = PAGE.read_text().split("| use | when |")[1].split("\n\n")[0]
    uses = {name for line in table.splitlines() for part in line.split("|")[1:2] for name in part.split("`")[1::2]}
    assert {name for use in uses for name in use.split("+")} == {*REGISTRY, *VECTORS}, f"see {PAGE.name}"
