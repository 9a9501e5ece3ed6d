"""The Parquet tables of a round, the same bytes for the same contents.

Rows are sorted by (prompt_id, start, drafter), columns have a fixed schema, files one
row-group size, one compression, and no time of writing. ``pyarrow`` is imported late.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from arena.types import Commit, FieldStep, Verdict, in_order

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal["steps", "commits", "timing", "contributions"]

ROW_GROUP = 65536
"""Rows in one row group."""


def steps_schema() -> pa.Schema:
    """Columns of ``steps/``: one row a drafter and lane-step."""
    import pyarrow as pa

    counts = ("n_offered", "n_drafted", "n_accepted", "n_matched")
    return pa.schema(
        [("prompt_id", pa.string()), ("start", pa.int32()), ("drafter", pa.string())]
        + [(name, pa.int32()) for name in counts]
        + [("expected_accepted", pa.float64()), ("tokens", pa.list_(pa.int32()))]
        + [(name, pa.list_(pa.float64())) for name in ("target_prob", "draft_prob")]
    )


def commits_schema() -> pa.Schema:
    """Columns of ``commits/``: one row a lane-step. All rows together are the trace."""
    import pyarrow as pa

    return pa.schema(
        [
            ("prompt_id", pa.string()),
            ("start", pa.int32()),
            ("tokens", pa.list_(pa.int32())),
            ("logprobs", pa.list_(pa.float64())),
            ("n_accepted", pa.int32()),
            ("finish", pa.string()),
        ]
    )


def steps(verdicts: Sequence[Verdict]) -> pa.Table:
    """Makes the table of verdicts."""
    import pyarrow as pa

    rows = sorted(verdicts, key=lambda v: (v.step.prompt_id, v.step.start, v.drafter))
    columns: dict[str, list[Any]] = {
        "prompt_id": [row.step.prompt_id for row in rows],
        "start": [row.step.start for row in rows],
        "drafter": [row.drafter for row in rows],
        "n_offered": [row.n_offered for row in rows],
        "n_drafted": [row.n_drafted for row in rows],
        "n_accepted": [row.n_accepted for row in rows],
        "n_matched": [row.n_matched for row in rows],
        "expected_accepted": [row.expected_accepted for row in rows],
        "tokens": [row.tokens for row in rows],
        "target_prob": [row.target_probs for row in rows],
        "draft_prob": [row.draft_probs for row in rows],
    }
    return pa.Table.from_pydict(columns, schema=steps_schema())


def commits(rows: Sequence[Commit]) -> pa.Table:
    """Makes the table of committed text."""
    import pyarrow as pa

    rows = in_order(rows)
    columns: dict[str, list[Any]] = {
        "prompt_id": [row.step.prompt_id for row in rows],
        "start": [row.step.start for row in rows],
        "tokens": [row.tokens for row in rows],
        "logprobs": [row.logprobs for row in rows],
        "n_accepted": [row.n_accepted for row in rows],
        "finish": [row.finish for row in rows],
    }
    return pa.Table.from_pydict(columns, schema=commits_schema())


def contributions(steps: Sequence[FieldStep], names: Sequence[str]) -> pa.Table:
    """Makes the table of what each drafter added, one row a lane-step and drafter; tokens.

    Args:
        steps: Of a round that was priced.
        names: Its drafters, sorted.
    """
    import pyarrow as pa

    rows = [
        (step.step.prompt_id, step.step.start, name, *shares, math.fsum(one[0] for one in step.contributions))
        for step in in_order(steps)
        for name, shares in zip(names, step.contributions, strict=True)
    ]
    schema = pa.schema(
        [("prompt_id", pa.string()), ("start", pa.int32()), ("drafter", pa.string())]
        + [(name, pa.float64()) for name in ("shapley", "leave_one_out", "coverage_share", "field_worth")]
    )
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    return pa.Table.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)], schema=schema
    )


def timing(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Makes the table of clock values.

    Args:
        rows: Plain scalars by column name; a column that a row lacks is null there.
            The loop writes ``who`` (worker), ``stage`` (method), ``start`` and
            ``seconds`` (clock values), ``lanes``, ``tokens`` and ``bytes``.
    """
    import pyarrow as pa

    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.table({name: [row.get(name) for row in rows] for name in names})


def empty(kind: Kind) -> pa.Table:
    """Makes a table without rows, with the columns known beforehand and ``round``."""
    import pyarrow as pa

    table = steps([]) if kind == "steps" else commits([]) if kind == "commits" else timing([])
    return table.add_column(0, "round", pa.array([], pa.int64()))


def write(table: pa.Table, path: Path) -> None:
    """Writes a table; equal tables give equal bytes under one version of pyarrow."""
    import pyarrow.parquet as pq

    pq.write_table(table, path, compression="zstd", row_group_size=ROW_GROUP, version="2.6")


def read(path: Path) -> pa.Table:
    """Reads a table that ``write`` wrote."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:  # read_table would take "round=" in the path for a partition
        return file.read()
