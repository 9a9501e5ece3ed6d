"""Sections of an experiment that say where it runs and what goes wrong there."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=1)]


class Strict(BaseModel):
    """A frozen section that refuses keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class BackendSection(Strict):
    """Where workers run. With a GPU, verifier and neural drafters share it by fractions."""

    kind: Literal["ray", "local"] = "ray"
    address: str | None = None
    num_cpus: Annotated[int, Field(ge=1)] | None = None
    threads: Annotated[int, Field(ge=0)] = 0
    verifier_gpus: Annotated[float, Field(ge=0, le=1)] = 0.4
    drafter_gpus: Annotated[float, Field(ge=0, le=1)] = 0.6
    placement: Literal["PACK", "SPREAD"] = "PACK"
    start_timeout: Annotated[float, Field(gt=0)] = 180.0
    call_timeout: Annotated[float, Field(gt=0)] = 300.0
    max_restarts: Annotated[int, Field(ge=0)] = 1
    worker_cpus: Annotated[float, Field(gt=0)] | None = None
    memory_limit_mb: Count | None = None


class Fault(Strict):
    """Something that befalls a worker in its first ``lives``, from its ``call`` on (keyed if not given)."""

    who: str
    what: Literal[
        "dies",
        "hangs",
        "slows",
        "leaks",
        "raises",
        "too_large",
        "negative",
        "floats",
        "too_many",
        "nan",
        "unnormalised",
        "excludes",
        "lanes",
        "nothing",
    ]
    call: Count | None = None
    lives: Count = 1
    mb: Count = 64


class ChaosSection(Strict):
    """Faults on purpose; moments that are not given are keyed by ``seed``, from 1 to ``within``."""

    seed: Annotated[int, Field(ge=0)] = 0
    within: Count = 20
    faults: tuple[Fault, ...] = ()
