"""Experiments as strict, frozen configuration: one small YAML each.

Unknown keys are refused with the nearest known name. Options of a drafter, a
verifier or a retirement rule sit beside its ``kind`` and are checked against the
constructor they go to by ``arena.registry``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from arena import sampling
from arena.cohort import fill
from arena.errors import ConfigError, one_of
from arena.sections import BackendSection as BackendSection
from arena.sections import ChaosSection as ChaosSection
from arena.sections import Count as Count
from arena.sections import Fault as Fault
from arena.sections import Strict as Strict
from arena.types import MAX_DRAFTERS, Sampling

NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"


class Choice(BaseModel):
    """A ``kind`` and the options of whatever it names."""

    model_config = ConfigDict(extra="allow", frozen=True)

    kind: str

    @property
    def options(self) -> dict[str, Any]:
        """Everything beside ``kind``."""
        return dict(self.model_extra or {})


class SamplingSection(Strict):
    """The target law's warping, applied alike to the verifier and to every drafter."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def record(self) -> Sampling:
        """The checked record that travels."""
        return sampling.check(Sampling(self.temperature, self.top_k, self.top_p))


class RulesSection(Strict):
    """``score`` judges each drafter alone; ``commit`` makes the text."""

    score: str = "speculative"
    commit: str = "recursive"
    order: Literal["keyed", "standing", "overlap"] = "keyed"
    measure_bound: bool = True


class EngineSection(Strict):
    """How a round is played: live, or by replay of a recorded ``trace`` by ``workers``."""

    kind: Literal["live", "replay"] = "live"
    trace: str | None = None
    starts: Literal["own", "joint", "every"] = "own"
    workers: Count = 2
    draft_length: Annotated[int, Field(ge=1, le=64)] = 4
    lanes: Count = 8
    in_flight: Annotated[int, Field(ge=0)] = 0
    learn_every: Count = 8
    feedback_top: Count = 64
    contribution: bool = False
    calibrate: bool = True

    @model_validator(mode="after")
    def _traced(self) -> Self:
        if (self.kind == "replay") != (self.trace is not None):
            raise ValueError(
                "kind replay and trace go together: expected both, e.g. kind: replay, trace: story.parquet"
            )
        return self


class CohortSection(Strict):
    """Breeds the drafters from a base model; students may first learn from its own text.

    ``warm_tokens`` are decoded from the verifier before round 1, on prompts that the
    rounds do not play, and kept in the user's cache by content.
    """

    recipe: str = "six"
    base: str = "verifier"
    warm_tokens: Annotated[int, Field(ge=0)] = 0


class RoundsSection(Strict):
    """A round is ``prompts`` x at most ``max_new_tokens``; ``max`` caps the rounds (a total)."""

    prompts: Count = 12
    max_new_tokens: Annotated[int, Field(ge=2)] = 48
    max: Annotated[int, Field(ge=1)] | None = None


class PromptsSection(Strict):
    """Where prompts come from: a packaged set, a file, or keyed random tokens."""

    path: str = "mixed"
    on_error: Literal["refuse", "skip"] = "refuse"
    limit: Count | None = None
    synthetic: Count | None = None
    length: Count = 8


class Experiment(Strict):
    """A whole experiment."""

    name: Annotated[str, Field(pattern=NAME)]
    description: str = ""
    seed: Annotated[int, Field(ge=0)] = 0
    verifier: Choice
    cohort: CohortSection | None = None
    drafters: dict[Annotated[str, Field(pattern=NAME)], Choice]
    sampling: SamplingSection = SamplingSection()
    rules: RulesSection = RulesSection()
    engine: EngineSection = EngineSection()
    rounds: RoundsSection = RoundsSection()
    retirement: Choice = Choice(kind="lowest_hit_rate")
    prompts: PromptsSection = PromptsSection()
    backend: BackendSection = BackendSection()
    chaos: ChaosSection | None = None
    on_unpromotable: Literal["refuse", "best"] = "best"

    @model_validator(mode="before")
    @classmethod
    def _bred(cls, body: Any) -> Any:
        return fill(body) if isinstance(body, Mapping) else body

    @field_validator("drafters")
    @classmethod
    def _roster(cls, drafters: dict[str, Choice]) -> dict[str, Choice]:
        if not 1 <= len(drafters) <= MAX_DRAFTERS:
            raise ValueError(f"{len(drafters)} drafters given; expected 1 to {MAX_DRAFTERS}")
        if taken := {"verifier", "scoreboard", "driver"} & set(drafters):
            raise ValueError(f"{sorted(taken)[0]!r} is the name of another worker; choose another name")
        return drafters

    def plain(self) -> dict[str, Any]:
        """The resolved experiment as plain values, ready for YAML."""
        return self.model_dump(mode="json")

    def to_yaml(self) -> str:
        """The resolved experiment as YAML text."""
        return yaml.safe_dump(self.plain(), sort_keys=False, allow_unicode=True)

    @property
    def digest(self) -> str:
        """Hash of the resolved experiment, the seed included."""
        return hashlib.sha256(json.dumps(self.plain(), sort_keys=True).encode()).hexdigest()


def packaged() -> dict[str, str]:
    """Names of the packaged experiments, each with its description."""
    bodies = {name: yaml.safe_load(entry.read_text(encoding="utf-8")) for name, entry in _entries().items()}
    return {name: str(body.get("description", "")).strip() for name, body in bodies.items()}


def _entries() -> dict[str, Traversable]:
    """Names of the packaged experiments, each with its file; nothing is parsed."""
    listed = files("experiments").iterdir()
    found = {entry.name.removesuffix(".yaml"): entry for entry in listed if entry.name.endswith(".yaml")}
    return dict(sorted(found.items()))


def load(name_or_path: str, overrides: Sequence[str] = (), seed: int | None = None) -> Experiment:
    """Reads a tournament by packaged name or by path, with overrides; see :func:`read`."""
    return build(read(name_or_path, overrides, seed), name_or_path)


def read(name_or_path: str, overrides: Sequence[str] = (), seed: int | None = None) -> dict[str, Any]:
    """Reads an experiment's plain values, unchecked, with overrides.

    Args:
        name_or_path: ``"story"`` or ``"mine.yaml"``.
        overrides: ``"section.key=value"``, the value read as YAML.
        seed: Replaces the experiment's seed.

    Raises:
        ConfigError: Nothing of that name, or not YAML.
    """
    if name_or_path.endswith((".yaml", ".yml")):
        path = Path(name_or_path)
        if not path.is_file():
            raise ConfigError(f"no experiment file {name_or_path!r}; packaged ones: {', '.join(_entries())}.")
        text = _read(path)
    else:
        entries = _entries()
        if name_or_path not in entries:
            raise ConfigError(one_of("experiment", name_or_path, entries) + " A path must end in .yaml.")
        text = entries[name_or_path].read_text(encoding="utf-8")
    body = parse(text, name_or_path)
    for override in overrides:
        _override(body, override)
    if seed is not None:
        body["seed"] = seed
    return body


def build(body: Mapping[str, Any], where: str) -> Experiment:
    """Checks plain values into an experiment; ``where`` names them in errors."""
    try:
        experiment = Experiment.model_validate(body)
    except ValidationError as error:
        raise ConfigError(explain(error, where, Experiment)) from None
    experiment.sampling.record()
    return experiment


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8.") from None


def parse(text: str, where: str) -> dict[str, Any]:
    """Reads YAML text into a mapping; `where` names it in errors."""
    try:
        body = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: not YAML: {str(error)[:300]}") from None
    if not isinstance(body, dict):
        raise ConfigError(f"{where}: expected a mapping of sections, got {type(body).__name__}.")
    return body


def _override(body: dict[str, Any], override: str) -> None:
    dotted, equals, text = override.partition("=")
    keys = dotted.split(".")
    if not equals or not all(keys):
        raise ConfigError(f"override {override!r}: expected section.key=value, e.g. engine.draft_length=6.")
    section = body
    for key in keys[:-1]:
        inner = section.setdefault(key, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"override {override!r}: {key!r} is not a section.")
        section = inner
    section[keys[-1]] = _parse_value(text, override)


def _parse_value(text: str, override: str) -> Any:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"override {override!r}: the value is not YAML: {str(error)[:200]}") from None


def explain(error: ValidationError, where: str, root: type[BaseModel]) -> str:
    """Words pydantic's complaints: the place, what was got, the nearest known key."""
    lines = []
    for item in error.errors():
        place = ".".join(str(part) for part in item["loc"] if part != "[key]")
        if item["type"] == "extra_forbidden":
            lines.append(f"{place}: " + one_of("key", item["loc"][-1], _known(root, item["loc"][:-1])))
        else:
            lines.append(f"{place or 'experiment'}: {item['msg']}; got {str(item['input'])[:80]!r}.")
    return f"{where}: " + "\n".join(lines)


def _known(root: type[BaseModel], place: tuple[int | str, ...]) -> list[str]:
    model: Any = root
    for part in place:
        field = model.model_fields.get(part)
        model = field.annotation if field else None
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return []
    return list(model.model_fields)
