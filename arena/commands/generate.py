"""``arena generate``: text by a verifier and a field of cheap drafters."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

from arena import registry, sampling
from arena.commands import fields
from arena.commands.output import FORMAT, Format, print_csv, print_json
from arena.generate import Generator
from arena.types import Sampling

CHEAP = (
    "long=copyist:max_ngram=5,min_ngram=3",
    "first=copyist:max_ngram=5,min_ngram=3,prefer=earliest",
    "short=copyist:max_ngram=2,min_ngram=2",
    "words=sprinter:order=4",
)
"""A long match is worth more tokens than a short one: each keeps rates of its own. In a text that
goes round in circles the first occurrence can be copied furthest; elsewhere the latest is the likelier."""


def generate(
    prompt: Annotated[str, typer.Argument(help="What the user says; `-` reads it from stdin.")],
    tokens: Annotated[int, typer.Option("-n", "--tokens", min=1, help="New tokens at most.")] = 128,
    model: Annotated[str, typer.Option(help="The verifier: an embedded name, a folder, a hub id.")] = (
        "smollm2-135m"
    ),
    drafter: Annotated[
        list[str] | None, typer.Option(metavar="[NAME=]KIND[:opt=val,...]", help="May be repeated.")
    ] = None,
    k: Annotated[
        int | None, typer.Option("-k", min=1, help="Draft length of all; chosen by what pays if absent.")
    ] = None,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Of the sampling.")] = 0,
    format: FORMAT = Format.table,
) -> None:
    """Generate text with speculative decoding: the model's own law, in fewer passes.

    Example:
      arena generate "Write a haiku about rivers, then explain every line." -n 100
    """
    said = sys.stdin.read() if prompt == "-" else prompt
    how = sampling.check(Sampling(temperature))
    drafters = fields.build(drafter or list(CHEAP))
    verifier = registry.load_class(registry.VERIFIERS["hf"])(model=model, lanes=1, prepack=True)
    text = Generator(verifier, drafters, k=k).generate(
        verifier.encode((("user", said),), ""), tokens, how, seed=seed
    )
    words = verifier.decode_text(text.tokens)
    row = {
        "tokens": len(text.tokens),
        "passes": len(text.passes),
        "tokens_per_pass": len(text.tokens) / max(1, len(text.passes)),
        "nodes": sum(one.nodes for one in text.passes),
        "seconds": text.seconds,
        "tokens_per_second": len(text.tokens) / text.seconds,
        "finish": text.finish,
    }
    if format is Format.json:
        print_json({"text": words, **row})
    elif format is Format.csv:
        print_csv(tuple(row), [row])
    else:
        print(words)
        Console(stderr=True).print(
            f"{row['tokens']} tokens in {row['passes']} passes ({row['tokens_per_pass']:.2f} a pass), "
            f"{row['tokens_per_second']:.1f} a second",
            style="dim",
        )
