"""Names to classes: the catalogue of drafters, verifiers, and their options.

``arena`` never imports ``drafters``: this module loads ``drafters:CATALOGUE`` by
name, the one dynamic edge, and adds what other distributions publish under the
entry point group ``draft_arena.drafters``.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import typing
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, ValidationError, create_model

from arena.errors import ConfigError, one_of

VERIFIERS = {
    "hf": "arena.verifiers.hf:HFVerifier",
    "table": "arena.verifiers.table:TableVerifier",
}
ENTRY_POINTS = "draft_arena.drafters"


def catalogue() -> dict[str, str]:
    """All known drafter kinds, each with its ``"module:Class"``."""
    known = dict(importlib.import_module("drafters").CATALOGUE)
    for entry in entry_points(group=ENTRY_POINTS):
        known.setdefault(entry.name, entry.value)
    return dict(sorted(known.items()))


def target_of(kind: str, known: Mapping[str, str], what: str) -> str:
    """Turns a kind into a dotted name.

    Args:
        kind: A known name, ``mypkg.mine:MyDrafter``, or ``./mine.py:MyDrafter``.
        known: Names to dotted names.
        what: For the error message, e.g. ``"drafter kind"``.

    Returns:
        ``"module:Class"`` or ``"/absolute/mine.py:Class"``.
    """
    if kind in known:
        return known[kind]
    module, colon, name = kind.rpartition(":")
    if not (colon and module and name.isidentifier()):
        hint = " Your own class goes by mypkg.mine:MyDrafter or ./mine.py:MyDrafter."
        raise ConfigError(one_of(what, kind, known) + hint)
    if module.endswith(".py"):
        path = Path(module).resolve()
        if not path.is_file():
            raise ConfigError(f"{what} {kind!r}: no file {module!r}.")
        return f"{path}:{name}"
    return kind


def load_class(target: str) -> type[Any]:
    """Imports ``"module:Class"`` or ``"/path/file.py:Class"``.

    Raises:
        ConfigError: It cannot be imported, or holds no such class.
    """
    module_name, _, name = target.rpartition(":")
    try:
        module = (
            _from_file(module_name) if module_name.endswith(".py") else importlib.import_module(module_name)
        )
    except Exception as error:  # a third party's module may raise anything
        raise ConfigError(f"cannot import {target!r}: {type(error).__name__}: {error}") from error
    cls = getattr(module, name, None)
    if not isinstance(cls, type):
        raise ConfigError(f"{module_name!r} holds no class {name!r}.")
    return cls


def _from_file(path: str) -> Any:
    name = f"_draft_arena_{Path(path).stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def parameters(cls: type[Any]) -> dict[str, inspect.Parameter]:
    """The options of a class: its constructor's parameters but ``self`` and ``name``."""
    found = inspect.signature(cls.__init__).parameters
    return {name: p for name, p in found.items() if name not in ("self", "name")}


def check_options(cls: type[Any], options: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Checks options against a constructor's annotations.

    Args:
        cls: The class they go to.
        options: Plain values from a YAML.
        where: Named in errors, e.g. ``"drafters.one"``.

    Returns:
        The options, with values converted where the annotation allows it.
    """
    known = parameters(cls)
    for name in options:
        if name not in known:
            raise ConfigError(f"{where}: " + one_of(f"option of {cls.__name__}", name, known))
    hints = typing.get_type_hints(cls.__init__)
    fields: dict[str, Any] = {
        name: (hints.get(name, Any), ... if p.default is p.empty else p.default) for name, p in known.items()
    }
    model = create_model(f"{cls.__name__}Options", __config__=ConfigDict(extra="forbid"), **fields)
    try:
        checked = model.model_validate(dict(options))
    except ValidationError as error:
        lines = [
            f"{where}.{'.'.join(map(str, item['loc']))}: {item['msg']}; got {str(item['input'])[:80]!r}."
            for item in error.errors()
        ]
        raise ConfigError("\n".join(lines)) from None
    return {name: getattr(checked, name) for name in options}
