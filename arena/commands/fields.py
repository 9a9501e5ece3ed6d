"""Drafters named on the command line: ``KIND[:opt=val,...]``, built in this process."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from arena import registry
from arena.errors import ConfigError, one_of
from arena.protocols import Drafter

SHORT: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "ngram": ("copyist", {"max_ngram": 3, "min_ngram": 1, "prefer": "earliest"}),
}
"""Short names for a kind with options. ``ngram`` is what vLLM's n-gram speculation does:
the earliest occurrence of the longest suffix of 3 to 1 tokens."""

_COMMA = re.compile(r",(?![^\[]*\])")


def parse(spec: str) -> tuple[str, str, dict[str, Any]]:
    """Splits ``[NAME=]KIND[:opt=val,...]`` into name, kind and options.

    Raises:
        ConfigError: It is not of that form.
    """
    head, colon, tail = spec.rpartition(":")
    if not colon or "=" not in tail:
        head, tail = spec, ""
    name, equals, kind = head.partition("=")
    if not equals:
        name, kind = spec, head
    options: dict[str, Any] = {}
    for part in _COMMA.split(tail) if tail else []:
        key, equals, value = part.partition("=")
        if not (equals and key.strip()):
            raise ConfigError(f"--drafter {spec!r}: {part!r} is not opt=val; e.g. copyist:max_ngram=3.")
        try:
            options[key.strip()] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise ConfigError(f"--drafter {spec!r}: the value of {key!r} is not YAML.") from None
    kind, preset = SHORT.get(kind, (kind, {}))
    return name, kind, {**preset, **options}


def build(specs: Sequence[str]) -> dict[str, Drafter]:
    """Builds the drafters that ``--drafter`` names, by distinct names.

    Raises:
        ConfigError: An unknown kind or option, or a name that is used twice.
    """
    if not specs:
        raise ConfigError(
            "no drafter: expected at least one --drafter KIND[:opt=val,...]; `arena ls drafters` lists kinds."
        )
    known, found = registry.catalogue(), {}
    for spec in specs:
        name, kind, options = parse(spec)
        if name in found:
            raise ConfigError(f"--drafter {name!r} is there twice; tell them apart by NAME=KIND:....")
        if kind not in known and ":" not in kind:
            raise ConfigError(one_of("drafter kind", kind, [*known, *SHORT]))
        cls = registry.load_class(registry.target_of(kind, known, "drafter kind"))
        found[name] = cls(name=name, **registry.check_options(cls, options, f"--drafter {spec}"))
    return found
