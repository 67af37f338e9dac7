"""What is proposed for a stream's labels, from histories whose labels are known."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson
import pytest

from cli.label_history import Seen, read
from cli.prices import Change, Price
from cli.suggest import Proposal, propose
from lab import fraud
from lab.fraud import START_MS, Fraud, Reports, Shape
from replay.sources.files import FileSource
from state.policies import Policies
from state.policy import Policy
from state.policy_checks import ALIKE
from state.scoring.ages import DAY_MS
from streams.config import stream_config
from streams.records.decoding import Decoder
from streams.records.limits import Limits
from tests.commands import Trueup

SHAPE = Shape(rows=6000, rate=0.05, inflation=5, missed=0.0, alarms=0.0)
ALL = replace(SHAPE, zeros="explicit")
NEXT_DAY, TWENTY_DAYS = (replace(ALL, soonest_days=days, latest_days=days) for days in (1, 20))
NEVER: Final = "Never set silence = 0"
#: Which reports come: of the highest tenth, of a one, and a number in [0, 1) that is drawn.
Told = Callable[[Any, Any, Any], Any]


def exported(directory: Path, stream: Fraud) -> FileSource:
    """Write a stream as two files."""
    lines: dict[str, list[bytes]] = {"forecasts": [], "outcomes": []}
    for message in stream.messages():
        lines[message.topic].append(orjson.dumps({**orjson.loads(message.value), "ts": message.time_ms}))
    for topic, each in lines.items():
        (directory / topic).write_bytes(b"\n".join(each))
    return FileSource(directory / "forecasts", directory / "outcomes")


def seen(directory: Path, stream: Fraud) -> Seen:
    (found,) = read(exported(directory, stream), Decoder(Policies([], Policy()), Limits()), "cards")
    return found


def checked(proposal: Proposal) -> Policy:
    """Return the policy that the proposed lines are."""
    policy = stream_config.parse(proposal.toml("cards"), "platt").of("cards")
    assert policy is not None
    return policy


def reported(shape: Shape, change: Callable[[Fraud], Any]) -> Fraud:
    """Return a stream whose reports, in columns, are those that a function makes of it, in the order of time."""
    stream = fraud.make(shape)
    columns = change(stream)
    order = np.argsort(columns[2], kind="stable")
    return replace(stream, reports=Reports(*(each[order] for each in columns)))


def chosen(told: Told) -> Fraud:
    """Return a stream of which only some outcomes are reported, each at its time."""

    def some(stream: Fraud) -> Any:
        row, y, _, _ = stream.reports
        flagged = stream.raw[row] >= np.quantile(stream.raw, 0.9)
        kept = told(flagged, y == 1, np.random.default_rng(5).random(len(row)))
        return [each[kept] for each in stream.reports]

    return reported(ALL, some)


def a_third(stream: Fraud) -> Any:
    """Return every third report."""
    return [each[::3] for each in stream.reports]


def looked_at(stream: Fraud) -> Any:
    """Analysts look at the highest scores alone: a day later they tell a zero."""
    row, y, ms, revision = stream.reports
    told = (y == 1) | (stream.raw[row] >= np.quantile(stream.raw, 0.95))
    early = np.where(y == 0, stream.forecast_ms[row] + DAY_MS, ms)
    return [each[told] for each in (row, y, early, revision)]


def wrong_at_first(stream: Fraud) -> Any:
    """Eight in a hundred labels are wrong for twenty days; most of them are of good payments, 5 % are frauds."""
    row, y, ms, revision = stream.reports
    wrong = np.random.default_rng(5).random(len(row)) < 0.08
    return (
        np.concatenate([row, row[wrong]]),
        np.concatenate([np.where(wrong, 1 - y, y), y[wrong]]),
        np.concatenate([ms, ms[wrong] + 20 * DAY_MS]),
        np.concatenate([revision, revision[wrong] + 1]),
    )


#: By what labels are like: the stream, silence, maturity and ttl in days that are proposed, and words of the reasons.
CASES: Final[dict[str, tuple[Fraud, float | None, int, int, str]]] = {
    "frauds alone are told": (fraud.make(SHAPE), 0.0, 45, 50, "silence means 0. Set it only if"),
    "frauds are told before the rest": (fraud.make(ALL), None, 45, 50, "Half of the outcomes of 1 come within"),
    "all come at one age": (fraud.make(TWENTY_DAYS), None, 0, 22, "No label comes sooner than the others"),
    "two of three lack, and why is not known": (reported(ALL, a_third), None, 45, 50, "silence stands for neither"),
    "analysts look at high scores": (reported(ALL, looked_at), 0.0, 45, 50, "Zeros are reported only for higher"),
    "the score chooses": (chosen(lambda high, *_: high), None, 45, 50, NEVER),
    "it does, but for a few": (chosen(lambda high, _, draw: high | (draw < 0.02)), None, 45, 50, NEVER),
    "high scores and most ones": (chosen(lambda high, one, draw: high | (one & (draw < 0.7))), 0.0, 45, 50, "Zeros"),
    "high scores and some of the others": (chosen(lambda high, _, draw: high | (draw < 0.3)), None, 45, 50, "neither"),
    "a random fifth": (chosen(lambda _, __, draw: draw < 0.2), None, 45, 50, "neither"),
    "first labels are wrong": (reported(NEXT_DAY, wrong_at_first), None, 21, 24, "First labels are often wrong"),
}


@pytest.mark.parametrize("like", CASES)
def test_what_is_proposed_fits_how_labels_come(like: str, tmp_path: Path) -> None:
    stream, silence, matures, ttl, words = CASES[like]
    found = propose(seen(tmp_path, stream))
    policy, reasons = checked(found), " ".join(found.reasons)
    assert (policy.silence, policy.matures_ms, policy.ttl_ms) == (silence, matures * DAY_MS, ttl * DAY_MS), reasons
    assert words in reasons
    assert (policy.unlabelled == ALIKE) == (words == NEVER)


def test_late_corrections_are_allowed_for(tmp_path: Path) -> None:
    stream = fraud.make(replace(SHAPE, alarms=0.2, review_days=60.0))
    policy = checked(propose(seen(tmp_path, stream)))
    latest = (stream.reports.ms - stream.forecast_ms[stream.reports.row]).max()
    assert policy.kept_ms > max(policy.ttl_ms, 0.8 * latest)


@pytest.mark.parametrize("by_label", [True, False])
def test_outcomes_of_a_batch_that_is_sorted_by_label_are_learnt_in_the_order_of_their_forecasts(
    tmp_path: Path,
    by_label: bool,  # noqa: FBT001 - a case
) -> None:
    def weekly(stream: Fraud) -> Any:
        row, y, ms, revision = stream.reports
        week = -(-ms // (7 * DAY_MS)) * 7 * DAY_MS
        order = np.lexsort((y if by_label else ms, week))
        return [each[order] for each in (row, y, week, revision)]

    found = propose(seen(tmp_path, reported(NEXT_DAY, weekly)))
    assert any("come sorted by label" in each for each in found.reasons) == by_label
    assert (checked(found).matures_ms > 7 * DAY_MS) == by_label


@pytest.mark.parametrize("shared", [True, False])
def test_outcomes_that_forecasts_share_are_said_to_need_an_entity(
    tmp_path: Path,
    shared: bool,  # noqa: FBT001 - a case
) -> None:
    stream = fraud.make(NEXT_DAY)
    row, y, ms, revision = stream.reports
    first = row // 10 * 10  # ten forecasts in a row are of one account, which is told once
    told = (y[np.argsort(row)][first] if shared else y, ms.max() // 10**6 * 10**6 + first, revision)
    found = propose(seen(tmp_path, replace(stream, reports=Reports(row, *told))))
    assert any("set entity" in each for each in found.reasons) == shared
    assert not any("come sorted by label" in each for each in found.reasons)
    if shared:
        assert "set entity" not in " ".join(propose(seen(tmp_path, stream), named=True).reasons)


@pytest.mark.parametrize("share", [1.0, 0.3])
def test_a_history_of_one_answer_alone_is_said_to_lack_the_other(tmp_path: Path, share: float) -> None:
    found = seen(tmp_path, fraud.make(ALL))
    zeros = next(each for each in found.labels if each.label == 0)
    alone = replace(found, labels=[zeros], known=round(share * found.old), ones=0, turns=0, turns_issued=0)
    reasons = " ".join(propose(alone).reasons)
    assert "Every outcome is 0: this history does not show what the model says of the others" in reasons
    assert "of 0 and of 1" not in reasons


def test_a_short_history_gives_no_proposal_or_says_that_it_is_short(tmp_path: Path) -> None:
    nothing = propose(seen(tmp_path, fraud.make(replace(SHAPE, rows=100))))
    assert nothing.ttl_ms is None
    assert "too few" in nothing.reasons[0]
    stream = fraud.make(replace(SHAPE, days=30.0))
    early = stream.reports.ms < START_MS + 40 * DAY_MS
    short = propose(seen(tmp_path, replace(stream, reports=Reports(*(each[early] for each in stream.reports)))))
    assert any("longer history" in each for each in short.reasons)


def test_orphans_are_outcomes_of_no_forecast_of_any_stream(tmp_path: Path) -> None:
    source = exported(tmp_path, fraud.make(SHAPE))
    with (tmp_path / "outcomes").open("ab") as file:
        file.write(b'\n{"event_id":"nobody","y":1,"ts":%d}' % START_MS)
        file.write(b'\n{"event_id":"other","y":1,"ts":%d}' % START_MS)
    with (tmp_path / "forecasts").open("ab") as file:
        file.write(b'\n{"event_id":"other","stream":"b","p":0.5,"ts":%d}' % START_MS)
    (found,) = read(source, Decoder(Policies([], Policy()), Limits()), "cards")
    assert found.orphans == 1


def test_command_prints_lines_that_the_streams_file_takes(tmp_path: Path, trueup: Trueup) -> None:
    exported(tmp_path, fraud.make(SHAPE))
    files = f"--forecasts {tmp_path / 'forecasts'} --outcomes {tmp_path / 'outcomes'}"
    words = trueup(f"streams suggest cards --unpriced {files}").out
    policy = stream_config.parse(words[words.index("[streams.") :], "platt").of("cards")
    assert policy is not None
    assert policy.silence == 0
    told = trueup(f"streams suggest cards --json --unpriced {files}").json
    assert (told["proposal"]["prices"], told["proposal"]["silence"]) == ([], 0)
    assert told["seen"]["last_revised_ms"] is None
    nothing = trueup(f"streams suggest nothing {files}")
    assert (nothing.status, "streams there: cards (6,000)" in nothing.err) == (1, True)


TABLE = "--score p --label y --time at --label-time known --table"


def test_labels_of_a_known_chance_mean_no_silence_and_columns_that_are_named_are_read(
    tmp_path: Path, trueup: Trueup
) -> None:
    """The score chooses what is labelled: without the chance, the rest would be said to be alike."""
    path, made = tmp_path / "cases.csv", tmp_path / "streams.toml"
    lines = ["p,y,at,known,chance,amount,model"]
    for n in range(3000):
        high, at = n % 10 == 0, 1_767_225_600 + 600 * n
        y, known = (int(n % 40 == 0), at + 86_400) if high or n % 100 == 5 else ("", "")
        lines.append(f"{0.9 if high else 0.1},{y},{at},{known},{1 if high else 0.02},{1 + n % 7},m{n // 1500}")
    path.write_text("\n".join(lines) + "\n")
    table = f"{TABLE} {path} --stream-name cases"
    named = f"{table} --label-rate chance --weight amount --model-version model"
    assert trueup(f"streams suggest cases --json {table}").json["proposal"]["unlabelled"] == "alike"
    told = trueup(f"streams suggest cases --json {named}").json
    assert [each["setting"] for each in told["proposal"]["prices"]] == ["ttl"]
    assert trueup(f"streams init {made} {named}").status == 0
    for text in (told["toml"], made.read_text()):
        policy = stream_config.parse(text, "platt").of("cases")
        assert policy is not None
        assert (policy.label_rate, policy.weight, policy.model_version) == ("label_rate", "weight", "model_version")
        assert (policy.silence, policy.unlabelled) == (None, Policy().unlabelled)
        assert policy.ttl_ms > DAY_MS
    assert "The chance of each label is known" in made.read_text().replace("\n#  ", "")


def test_what_a_replay_finds_dear_is_not_proposed_and_every_price_is_told(tmp_path: Path, trueup: Trueup) -> None:
    """Labels come at two ages, a few after 20 days: to wait for these would tell of each turn of the level too late."""
    path, chance = tmp_path / "turns.csv", random.Random(2)
    lines = ["p,y,at,known"]
    for n in range(2400):
        y = int(chance.random() < (0.5 if n // 400 % 2 else 0.1))
        at, days = 1_767_225_600 + 4320 * n, 20 if n % 30 == 0 else 1 + y
        lines.append(f"0.25,{y},{at},{at + days * 86_400}")
    path.write_text("\n".join(lines) + "\n")
    told = trueup(f"streams suggest turns --stream-name turns --json {TABLE} {path}").json
    prices = {each["setting"]: each["changes"] for each in told["proposal"]["prices"]}
    assert prices.keys() == {"matures", "ttl"}
    assert all(each["low"] > 0.0 for each in prices["matures"].values())
    assert prices["ttl"]["brier"]["value"] == 0.0
    assert (told["proposal"]["matures_ms"], told["toml"]) == (None, '[streams."turns"]\nttl = "22d"')
    assert any("it is not proposed" in each for each in told["proposal"]["reasons"])


def test_a_price_beyond_its_interval_is_a_cost_in_words() -> None:
    dear = Price("matures", {"log_loss": Change(0.014, 0.009, 0.019), "brier": Change(0.001, -0.002, 0.004)})
    assert dear.costs
    assert dear.said() == (
        "matures: by replay log loss +1.40 % [+0.90, +1.90], Brier score +0.10 % [-0.20, +0.40]; it is not proposed."
    )
    assert not Price("ttl", {"log_loss": Change(0.001, -0.002, 0.004)}).costs
    assert Proposal(matures_ms=DAY_MS, silence=0, ttl_ms=9 * DAY_MS).without("matures").values.keys() == {"ttl"}


@pytest.mark.parametrize("name", ["cards", 'a"b\\c', "pay[eu]", "a*"])
def test_the_lines_are_of_that_name_alone(name: str) -> None:
    policies = stream_config.parse(Proposal(ttl_ms=DAY_MS).toml(name), "platt")
    assert policies.matched(name)
    assert not any(map(policies.matched, ("paye", "ab")))
