"""What a table's labels say that the plan does not: what silence means, and how long labels take.

Zeros without a date mean silence, because nobody reports a good payment. Forecasts are kept until their labels come.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from replay.configuration import Configuration
from replay.sources.record import TableError
from replay.sources.table import TableSource
from state.forecasts import PROBABILITY
from state.policies import Policies
from state.policy import DEFAULT_TTL_MS, Policy
from state.scoring.ages import words
from streams.config.stream_config import duration

#: A forecast matures when this share of the ones is known. It is kept this many times as long as the slowest
#: label took.
KNOWN, SPARE = 0.99, 1.1
_AT_ONCE: Final = (
    "Labels were taken as known at once, with the score, because --label-time was left out. If they come later, name "
    "the column that says when: late labels teach later, and what is served is then worse than shown here."
)


def lasting(latest_ms: float) -> str:
    """Return the ``ttl`` for labels that took at most this long, as the streams file writes it: a tenth longer.

    Examples
    --------
    >>> lasting(44.2 * 86_400_000)
    '50d'
    """
    return words(round(SPARE * duration(words(latest_ms))))


def understood(source: TableSource, plans: Sequence[Configuration]) -> tuple[list[Configuration], list[str]]:
    """Return plans that fit the labels of a table; and sentences about what was assumed.

    Zeros that have no date are silence. Forecasts mature when the plan says, or otherwise when 99 % of the ones were
    known. If a plan leaves `ttl` at its default and labels took as long or longer, forecasts are kept until the latest
    label came.

    Raises TableError if there is a zero without a date but neither a plan nor a dated label of 1 says how long reports
    take; or if a plan says that silence means 1.
    """
    said = [_AT_ONCE] if source.at_once else []
    made = []
    for plan in plans:
        before = plan.policies
        after = _changed(before, partial(_silent, source), source.silent)
        longer = _changed(after, partial(_longer, source), source.latest_ms)
        made.append(replace(plan, policies=longer))
        told = [*_unused(source, before), *_sentences(source, before, after), *_kept(source, after, longer)]
        said += [sentence for sentence in told if sentence not in said]
    return made, said


def _unused(source: TableSource, policies: Policies) -> Iterator[str]:
    """Say that no stream of a table is in the streams file."""
    if policies.patterns and not any(map(policies.matched, source.streams)):
        named = ", ".join(pattern for pattern, _ in policies.patterns[:3])
        yield (
            f"The streams file says nothing of {next(iter(source.streams))}, a stream of the table, and of none of its "
            f"others; it names {named}. --stream-name says which stream the table is of."
        )


def _changed(
    policies: Policies, change: Callable[[Mapping[int, list[str]], Policy], Policy], streams: Iterable[str]
) -> Policies:
    """Return the policies with changes for some streams.

    ``change`` is given the streams of each policy, by the policy's identity.
    """
    used: dict[int, list[str]] = defaultdict(list)
    for stream in streams:
        if (policy := policies.of(stream)) is not None:
            used[id(policy)].append(stream)
    if not used:
        return policies
    return policies.each(partial(change, used))


def _longer(source: TableSource, used: Mapping[int, list[str]], policy: Policy) -> Policy:
    """Return a policy that keeps forecasts until the slowest label of its streams has come, if its ttl was not set."""
    latest = max([source.latest_ms[stream] for stream in used.get(id(policy), ())], default=0)
    return _until(policy, latest) if policy.ttl_ms == DEFAULT_TTL_MS else policy


def _kept(source: TableSource, before: Policies, after: Policies) -> Iterator[str]:
    """Say how long forecasts are kept if labels took longer than the default, and what a worker needs for the same."""
    alike: dict[int, list[str]] = defaultdict(list)
    for stream in source.latest_ms:
        was, policy = before.of(stream), after.of(stream)
        if was is not None and policy is not None and was.ttl_ms != policy.ttl_ms:
            alike[policy.ttl_ms].append(stream)
    for ttl, streams in alike.items():
        named = streams[0] if len(streams) == 1 else f"{len(streams):,} streams"
        latest = max(source.latest_ms[stream] for stream in streams)
        yield (
            f"Labels of {named} took up to {words(latest)}, and a worker keeps forecasts for {words(DEFAULT_TTL_MS)} "
            f"where no `ttl` is set. They are kept for {words(ttl)} here. "
            + _written(streams[0], f'ttl = "{words(ttl)}"')
        )


def _written(stream: str, lines: str) -> str:
    """Say which lines in a streams file make a worker do the same."""
    return f"A worker does the same with these lines in its streams file:\n[streams.{json.dumps(stream)}]\n{lines}"


def _silent(source: TableSource, used: Mapping[int, list[str]], policy: Policy) -> Policy:
    """Return a policy in which silence means 0, if it meant nothing and the policy is used."""
    if id(policy) not in used or policy.kind != PROBABILITY or policy.silence is not None:
        return policy
    ages = source.ages_ms
    if not policy.matures_ms and not len(ages):
        raise TableError(
            f"--label-time {source.columns.label_time}: zeros without a date are silence, and no 1 has a date that "
            "says how long reports take; write `matures` and `silence = 0` of the stream into a file for --streams"
        )
    matures, latest = policy.matures_ms, float(ages.max(initial=0))
    if not matures:
        known = float(np.quantile(ages, KNOWN))
        # An outcome in the same millisecond in which its forecast matures comes too late.
        matures = duration(words((latest if latest <= SPARE * known else known) + 1))
    return replace(_until(policy, max(matures, latest)), matures_ms=matures, silence=0.0)


def _until(policy: Policy, latest: float) -> Policy:
    """Return a policy that keeps forecasts longer than the slowest label took, ms."""
    if policy.ttl_ms > latest:
        return policy
    ttl = duration(lasting(latest))
    return replace(policy, ttl_ms=ttl, revisable_ms=max(policy.revisable_ms, ttl) if policy.revisable_ms else 0)


def _sentences(source: TableSource, before: Policies, after: Policies) -> Iterator[str]:
    """Say what silence means, from which age on, and what a worker needs for the same."""
    alike: dict[tuple[bool, bool, str, str], list[str]] = defaultdict(list)
    for stream in source.silent:
        was, policy = before.of(stream), after.of(stream)
        if was is None or policy is None:
            continue
        if policy.silence != 0:
            raise TableError(
                f"--label-time {source.columns.label_time}: zeros of {stream} have no date, so silence means 0, but "
                f"silence = {policy.silence!r} for this stream"
            )
        told = was.silence is not None, was.matures_ms > 0, words(policy.matures_ms), words(policy.ttl_ms)
        alike[told].append(stream)
    for (silent, matures, age, ttl), streams in alike.items():
        zeros = sum(source.silent[stream] for stream in streams)
        named = streams[0] if len(streams) == 1 else f"{len(streams):,} streams"
        what = (
            f"{zeros:,} zeros of {named} have no date. They are taken as silence: a forecast without an outcome counts "
            f"as 0 from the age of {age} on"
        )
        if silent:
            yield f"{what}, as the streams file says."
            continue
        yield (
            f"{what}, {'the `matures` of the streams file' if matures else 'by which 99 in 100 ones were known'}. "
            + _written(streams[0], f'matures = "{age}"\nsilence = 0\nttl = "{ttl}"')
        )
