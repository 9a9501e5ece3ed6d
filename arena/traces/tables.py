"""The one Parquet schema of traces; a row a text. ``pyarrow`` is imported late."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arena import durable, tables
from arena.errors import ConfigError
from arena.traces.records import Loaded, Trace
from arena.types import Sampling

if TYPE_CHECKING:
    import pyarrow as pa


def schema() -> pa.Schema:
    """Columns of a trace; ``max_tokens`` is null where the budget is not known."""
    import pyarrow as pa

    ids, text = pa.list_(pa.int32()), pa.string()
    return pa.schema(
        [
            ("prompt_id", text),
            ("prompt", ids),
            ("tokens", ids),
            ("logprobs", pa.list_(pa.float64())),
            ("law", text),
            ("temperature", pa.float64()),
            ("top_k", pa.int32()),
            ("top_p", pa.float64()),
            ("warped", text),
            ("finish", text),
            ("end_logged", pa.bool_()),
            ("stopped_by_text", pa.bool_()),
            ("max_tokens", pa.int32()),
            ("prefilled", pa.bool_()),
            ("fingerprint", text),
            ("source", text),
            ("category", text),
            ("starts", ids),
            ("eos", ids),
        ]
    )


def write(traces: Sequence[Trace], path: Path) -> None:
    """Writes texts sorted by id and sampling: all of them or nothing."""
    import pyarrow as pa

    columns = schema()
    ordered = sorted(traces, key=lambda one: (one.prompt_id, one.sampling.temperature))
    rows = []
    for trace in ordered:
        sampling = trace.sampling
        warp = {"temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p}
        rows.append({name: warp.get(name, getattr(trace, name, None)) for name in columns.names})
    with durable.replacing(path) as temporary:
        tables.write(pa.Table.from_pylist(rows, schema=columns), temporary)


def read(path: Path) -> Loaded:
    """Reads what :func:`write` wrote.

    Raises:
        ConfigError: It is not a trace of this schema.
    """
    try:
        table = tables.read(path)
        if table.schema.names != schema().names:
            raise ValueError(f"its columns are {table.schema.names}")
        return Loaded(tuple(_trace(row) for row in table.to_pylist()))
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(
            f"{str(path)!r} is not a trace: {str(error)[:300]}. Expected what `arena trace` writes."
        ) from error


def _trace(row: dict[str, Any]) -> Trace:
    warp = Sampling(row.pop("temperature"), row.pop("top_k"), row.pop("top_p"))
    listed = {name: tuple(value) for name, value in row.items() if isinstance(value, list)}
    return Trace(**{**row, **listed, "sampling": warp})
