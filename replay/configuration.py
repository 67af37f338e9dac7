"""Configurations to replay: the present plan with a different calibrator, or other plans."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from state.calibrators import Value
from state.forecasts import PROBABILITY, PROBS
from state.policies import Policies
from state.policy import Policy
from streams.config import stream_config
from streams.config.settings import Settings, SettingsError

#: Name of the plan that the environment gives. It is replayed if nothing else is asked for.
PRESENT = "present"


@dataclass(frozen=True)
class Configuration:
    """A configuration to replay: its name, and the policy of each stream."""

    name: str
    policies: Policies

    @property
    def reading(self) -> tuple[object, ...]:
        """The part of the plan that decides how records are read and how long rows live.

        Configurations in which it is the same share one decoding and one ledger.
        """
        read = [(pattern, *_read(policy)) for pattern, policy in self.policies.patterns]
        default = self.policies.default
        return (*read, default and _read(default), self.policies.early_ttl_ms)

    def segments(self, stream: str | None) -> set[str]:
        """Return the names of the segments of a stream; None: those of all streams."""
        return {name for policy in self._of(stream) for name in policy.segments}

    def values(self, stream: str | None, name: str) -> list[object]:
        """Return the values of a setting for a stream; None: those of any stream."""
        return [value for policy in self._of(stream) if (value := getattr(policy, name))]

    def _of(self, stream: str | None) -> list[Policy]:
        policies = self.policies.all if stream is None else [self.policies.of(stream)]
        return [policy for policy in policies if policy is not None]


def _read(policy: Policy) -> tuple[object, ...]:
    classes = policy.classes if policy.kind == PROBS else 0
    return (
        policy.kind,
        classes,
        policy.features,
        policy.labels,
        policy.layout,
        policy.segments_required,
        policy.entity,
        policy.weight,
        policy.model_version,
    )


def configurations(
    settings: Settings, calibrators: Sequence[str], files: Sequence[Path], *, challengers: bool = False
) -> list[Configuration]:
    """Return what to replay, in the given order; the present plan if nothing is given.

    Raises SettingsError if one is not allowed, or two have the same name.

    ``settings``: give the present plan, and the default calibrator for plans that name none.
    ``calibrators``: ``NAME`` or ``NAME:option=value,...``: each plan with it wherever one probability is forecast.
    ``files``: streams files (TOML), which are the plans. Without any, the present plan is the only one.
    ``challengers``: for each plan, replay first the plan, then the plan with each challenger in place of its champion.
    """
    found: list[Configuration] = []
    for plan in [_of_file(path, settings) for path in files] or [Configuration(PRESENT, settings.policies)]:
        of = f"{plan.name} " if len(files) > 1 else ""
        varied = promotions(plan.policies, plan.name) if challengers else []
        varied += [with_calibrator(plan.policies, spec) for spec in calibrators]
        found += [replace(each, name=of + each.name) for each in varied] or [plan]
    names = [each.name for each in found]
    for name in names:
        if names.count(name) > 1 or name == "raw":
            raise SettingsError(f"two configurations are called {name!r}" if name != "raw" else "'raw' is taken")
    return found


def _of_file(path: Path, settings: Settings) -> Configuration:
    try:
        policies = stream_config.parse(path.read_text(), settings.default_calibrator, settings.policies.coin)
    except OSError as exc:
        raise SettingsError(f"cannot read {path}: {exc.strerror}") from exc
    except ValueError as exc:
        raise SettingsError(f"{path}: {exc}") from exc
    return Configuration(path.stem, policies)


def promotions(policies: Policies, name: str = PRESENT) -> list[Configuration]:
    """Return a plan, and for each challenger the plan with this challenger promoted wherever it runs.

    Raises SettingsError if there is no challenger.
    """
    specs = dict.fromkeys(_spec(each) for policy in policies.all for each in policy.challengers)
    if not specs:
        raise SettingsError(f"--challengers: no stream of the {name} plan has challengers; `shadow` names them")
    return [Configuration(name, policies), *(_promoted(policies, spec) for spec in specs)]


def _promoted(policies: Policies, spec: str) -> Configuration:
    def promoted(policy: Policy) -> Policy:
        return next((each for each in policy.challengers if _spec(each) == spec), policy)

    return Configuration(spec, policies.each(promoted))


def _spec(policy: Policy) -> str:
    """Return a calibrator with its options, in the form that `with_calibrator` reads."""
    options = ",".join(f"{name}={value}" for name, value in sorted(policy.options.items()))
    return f"{policy.calibrator}:{options}" if options else policy.calibrator


def with_calibrator(policies: Policies, spec: str) -> Configuration:
    """Return a plan with a different calibrator; see `configurations`."""
    name, _, given = spec.partition(":")
    options: dict[str, Value] = {}
    for pair in filter(None, given.split(",")):
        option, equals, value = pair.partition("=")
        if not equals:
            raise SettingsError(f"--calibrator {spec}: {pair!r} is not option=value")
        options[option.strip()] = _value(value.strip())
    try:
        if not policies.all:
            Policy(name, options)
        return Configuration(spec, policies.each(lambda policy: _changed(policy, name, options)))
    except ValueError as exc:
        raise SettingsError(f"--calibrator {spec}: {exc}") from exc


def _changed(policy: Policy, calibrator: str, options: Mapping[str, Value]) -> Policy:
    if policy.kind != PROBABILITY:
        return policy
    return replace(policy, calibrator=calibrator, options=options, shadow=())


def _value(text: str) -> Value:
    """Return a number if the text is one. Lists need a TOML file."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
