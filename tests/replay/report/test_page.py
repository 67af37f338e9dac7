"""The page as text: the same bytes, the result's numbers, what must be warned of, and names made to break it."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from agents.status.markup import coordinate, tag, text
from cli.main import main
from replay.report.page import DEFINITIONS, TEMPLATES, page
from replay.report.warnings import cautions
from replay.result import Result
from tests.replay.history import replayed
from tests.replay.report.results import HOSTILE, played

#: Everything a page may be made of; a name that became an element of another kind would show.
ELEMENTS = {
    *("html", "head", "meta", "title", "style", "body", "main", "header", "section", "figure", "figcaption", "div"),
    *("p", "h1", "h2", "h4", "ul", "li", "dl", "dt", "dd", "b", "strong", "span", "bdi", "br", "wbr", "code", "data"),
    *("pre", "table", "thead", "tbody", "tr", "th", "td", "svg", "path", "line", "rect", "circle", "text"),
}


class Page(HTMLParser):
    """What a page holds: its elements with their attributes, and its text."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((name, dict(attributes)))
        if name not in {"meta", "br", "wbr"}:
            self.open.append(name)

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name

    def handle_data(self, data: str) -> None:
        self.text += data


def test_same_result_gives_the_same_bytes(result: Result, tmp_path: Path) -> None:
    assert page(result) == page(result)
    assert page(played(tmp_path)) == page(result), "another run, from other paths"


def test_lines_for_the_streams_file_stand_as_lines(result: Result) -> None:
    found = page(replace(result, taken=('Write these:\n[streams."a"]\nsilence = 0',))).decode()
    assert "<pre>[streams.&#34;a&#34;]<br>silence = 0<br></pre>" in found


def test_page_is_whole_and_asks_for_nothing(result: Result) -> None:
    found = Page(page(result).decode())
    assert found.open == []
    assert {name for name, _ in found.elements} <= ELEMENTS
    for name, attributes in found.elements:
        assert not {"src", "href", "srcset", "style", "action", "xlink:href"} & attributes.keys(), name
        assert not any(each.startswith("on") for each in attributes)
    assert "url(" not in page(result).decode()
    assert "@import" not in page(result).decode()
    policy = next(each["content"] for _, each in found.elements if "http-equiv" in each)
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    ids = [each["id"] for _, each in found.elements if "id" in each]
    assert len(ids) == len(set(ids))


def test_page_says_what_was_read_what_ran_and_how_it_is_defined(result: Result) -> None:
    told = Page(page(result).decode()).text
    for file in result.manifest["files"].values():
        assert file["name"] in told
        assert file["blake2b"] in told
    for contender in result.contenders:
        for config, recipe in contender.recipes.items():
            assert config in told
            assert recipe in told
    for name, definition in DEFINITIONS:
        assert name in told
        assert definition in told
    assert result.run in told
    assert "14 Nov 2023" in told


def test_every_score_over_a_column_is_defined() -> None:
    defined = {word.lower() for name, _ in DEFINITIONS for word in name.split(", ")}
    template = (TEMPLATES / "specialists.html").read_text()
    tables = re.findall(r'p\.table\("(?:comparison|ranks)", .*, \[(.+)\], \w+\) %\}', template)
    assert len(tables) == 2
    over = {word.strip().lower() for table in tables for word in re.findall(r'"([^"]*)"', table)}
    assert over - defined - {"", "outcomes", "mean", "different"} == set()


def test_labels_that_come_for_some_scores_only_are_warned_of(result: Result) -> None:
    said = [f"{each.title} {each.sentence}" for each in cautions(result)]
    assert "Nothing can be said of raw scores 0.0–0.1" in said[0]
    assert "Outcomes depend on the score." in said[1]
    assert any("have no outcome." in each for each in said)
    told = Page(page(result).decode()).text
    assert said[0] in told
    assert "not identifiable" in told
    overall = result.contenders[0].overall
    assert overall is not None
    whole = replace(
        result,
        contenders=[
            replace(
                each,
                overall=replace(
                    overall,
                    issued=overall.raw.n,
                    coverage=[replace(b, issued=b.resolved, share=1.0, identifiable=True) for b in overall.coverage],
                ),
            )
            for each in result.contenders
        ],
    )
    assert not any("Nothing can be said" in each.title for each in cautions(whole))
    assert "not identifiable" not in Page(page(whole).decode()).text


def test_names_from_the_wire_stay_text(hostile: str) -> None:
    found = Page(hostile)
    assert {name for name, _ in found.elements} <= ELEMENTS
    assert found.open == []
    assert not any(each.startswith("on") or each == "src" for _, given in found.elements for each in given)
    assert "<script>alert(1)</script><img src=//x.test" in found.text, "shown as it is, as text"
    assert "⟨U+202E⟩" in found.text, "what cannot be seen is spelled out"
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00]", hostile)
    assert "x" * 128 in found.text


def test_intervals_stand_apart_from_their_value_in_its_unit(result: Result) -> None:
    told = Page(page(result).decode()).text
    assert not re.search(r"[0-9%]\[", told)
    ranks = told[told.index("Order and level, after the warm-up") : told.index("Paired differences")]
    assert len(re.findall(r"\d\.\d% \[[\d.]+%, [\d.]+%\]", ranks)) == 4  # recall of raw, two configurations, a draw
    assert len(re.findall(r"0\.\d{4} \[0\.\d{4}, 0\.\d{4}\]", ranks)) == 4  # and their AUC


def test_names_of_settings_are_code(result: Result) -> None:
    contenders = [
        replace(each, streams={name: replace(of, ttl_ms=1000) for name, of in each.streams.items()})
        for each in result.contenders
    ]
    late = {
        name: replace(of, late=replace(of.late, share=0.5)) for name, of in contenders[0].streams.items() if of.late
    }
    shown = page(replace(result, contenders=[replace(contenders[0], streams=late), *contenders[1:]])).decode()
    assert "<code>trueup streams suggest</code>" in shown
    assert "`" not in Page(shown).text
    assert "Of all full windows of 5,000 outcomes" in shown


def test_text_is_escaped_wherever_it_stands() -> None:
    assert text(HOSTILE).count("<") == 0
    assert text("a\x00\n\ud800\u2066") == "a⟨U+0000⟩⟨U+000A⟩⟨U+D800⟩⟨U+2066⟩"
    assert tag("i", HOSTILE, title=HOSTILE).count("<") == 2
    assert tag("i", title='" onclick="x') == '<i title="&quot; onclick=&quot;x"></i>'
    assert [coordinate(v) for v in (1.0, 0.126, -0.004, 1e6)] == ["1", "0.13", "0", "1000000"]


@pytest.mark.usefixtures("no_warm_up")
def test_replay_of_nothing_or_of_classes_alone_is_told_without_a_choice(tmp_path: Path, result: Result) -> None:
    plan = '[streams.intent]\ncalibrator = "multiclass"\noptions = { classes = 3 }\n'
    forecasts = [{"event_id": str(i), "stream": "intent", "probs": [0.2, 0.3, 0.5], "ts": i} for i in range(50)]
    outcomes = [{"event_id": str(i), "y": i % 3, "ts": 100 + i} for i in range(50)]
    told = Page(page(replayed(tmp_path, forecasts, outcomes, {"s": plan})).decode()).text
    assert "No choice can be made for intent: too few forecasts have an outcome." in told
    assert "classwise ECE" in told
    assert "intent: your model's probability of its likeliest class is off by" in told
    assert "log loss of classes is of normalised" in told
    empty = replace(result, contenders=[], differences=[], start_ms=None, end_ms=None, records=0)
    assert "No choice can be made" in Page(page(empty).decode()).text


@pytest.mark.parametrize("n", [1, 60, 400])
def test_few_forecasts_fail_nowhere(tmp_path: Path, n: int) -> None:
    found = played(tmp_path, n=n)
    told = Page(page(found).decode()).text
    assert "nan" not in re.sub("[a-z]nan|nan[a-z]", "", told)
    if n < 200:
        assert "No choice can be made from this replay: too few forecasts have an outcome." in told


def test_topics_are_told_by_their_offsets(result: Result) -> None:
    manifest = {"forecasts": {"topic": "forecasts-eu", "offsets": {"0": [5, 105], "1": [7, 7]}}}
    told = re.sub(r"\s+", "", Page(page(replace(result, manifest=manifest)).decode()).text)
    assert "forecasts-eu05105100" in told
    assert "forecasts-eu1770" in told


def test_the_message_comes_first_in_peoples_words(result: Result) -> None:
    markup = page(result, "trueup replay --table a.csv", "card-fraud 3.2").decode()
    told = Page(markup).text
    said = r"Your model said [\d.]+\xa0% on average; [\d.]+\xa0% of [\d,]+ came true since .* trueup, after its warm-up"
    found = re.search(said, told)
    assert found
    assert found.start() < told.index("Before you read on") < told.index("Which configuration, and why")
    assert "Model: card-fraud 3.2" in told
    assert "trueup replay --table a.csv" in told
    for each in ("Cut-offs.", "Months.", "Calibration slope and intercept.", "Sign-off"):
        assert each in told
    captions = [each.split("</figcaption>")[0] for each in markup.split("<figcaption>")[1:]]
    assert not [each for each in captions if re.search(r"\b(left|right):", each, re.IGNORECASE)], (
        "nothing is on a phone"
    )


def test_scores_are_told_in_the_unit_of_the_table(result: Result) -> None:
    permille = replace(result, manifest={**result.manifest, "options": {"unit": "permille"}})
    review = result.contenders[0].overall
    assert review is not None
    (score, _), *_ = review.review.lookup
    assert f">{1000 * score:g}</data>" in page(permille).decode()
    percents = replace(result, manifest={**result.manifest, "options": {"unit": "percent"}})
    (cuts,) = re.findall(r'id="cuts">(.*?)</figure>', page(percents).decode(), re.DOTALL)
    (_, model, served, *_), *_ = (re.findall(r"<td.*?</td>", row) for row in cuts.split("<tr>")[2:])
    assert ("%" in model, "%" in served) == (True, True), "the model's and the served cut-off have one unit"


def test_configurations_that_resolved_other_forecasts_have_their_own_raw(result: Result) -> None:
    one, other = result.contenders
    assert other.overall is not None
    fewer = replace(other.overall, raw=replace(other.overall.raw, n=17))
    told = Page(page(replace(result, contenders=[one, replace(other, overall=fewer)])).decode()).text
    assert f"raw, as {other.name} resolved them" in told


def test_report_lands_whole_or_not_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    played(tmp_path, n=300)
    given = [f"--{name}={tmp_path / name}.jsonl" for name in ("forecasts", "outcomes")]
    assert main(["replay", *given, "--report", str(tmp_path / "none" / "r.html")]) != 0
    assert "there is no such directory" in capsys.readouterr().err
    assert main(["replay", *given, "--report", str(tmp_path / "r.html")]) == 0
    assert (tmp_path / "r.html").read_bytes().startswith(b"<!doctype html>")
