"""The model card of a promoted drafter: what it is, and what it is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_CARD = """---
library_name: transformers
pipeline_tag: text-generation
tags:
- speculative-decoding
- draft-arena
---

# {promoted}, generation {generation}

This model was a drafter. It was promoted after a tournament of speculative decoding in
[Draft Arena]: {how}.

It loads in any process, without Draft Arena:

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("path/of/this/folder")
tokenizer = AutoTokenizer.from_pretrained("path/of/this/folder")
```

## The target law has changed

Speculative decoding never changes what its verifier says. **Promotion does.** This model
is not its parent `{parent}` made faster: it is another, smaller model with another law.
Whatever was checked of the parent (quality, safety, facts) was not checked of it.

{drift}

## What it is

| | |
|---|---|
| drafter | `{kind}` with `{options}` |
| weights | {weights} |
| layers | {layers} |
| parameters | {parameters:,} |
| parents, nearest first | {parents} |

## How it did

{scores}

Hit rate is accepted over offered draft tokens, against a verifier whose law it was made
to imitate. It says how well the model predicts its parent, not how good its text is.

Run `{run}` (experiment `{experiment}`, seed {seed}, config `{config_hash}`), promoted on
{date}. `lineage.json` holds the same for programs.

[Draft Arena]: https://pypi.org/project/draft-arena/
"""


def model_card(lineage: Mapping[str, Any]) -> str:
    """Writes the card, in Markdown with the front matter of the Hugging Face hub.

    Args:
        lineage: What ``lineage.json`` holds.
    """
    options = {key: value for key, value in lineage["drafter"]["options"].items() if value is not None}
    return _CARD.format(
        **{
            key: lineage[key]
            for key in ("promoted", "generation", "weights", "layers", "parameters", "run", "experiment")
        },
        how=_how(lineage),
        parent=lineage["parents"][0]["model"],
        parents=", then ".join(f"`{parent['model']}`" for parent in lineage["parents"]),
        drift=_drift(lineage["drift"]),
        kind=lineage["drafter"]["kind"],
        options=options,
        scores=_scores(lineage["scores"]),
        seed=lineage["seed"],
        config_hash=lineage["config_hash"][:12],
        date=lineage["date"][:10],
    )


def _how(lineage: Mapping[str, Any]) -> str:
    if lineage["promoted"] != lineage["champion"]:
        return (
            f"the champion was {lineage['champion']}, which is no language model and cannot verify; "
            f"{lineage['promoted']} was the best of the ranking that can"
        )
    return {
        "last_survivor": "it was the last one standing",
        "walkover": "it was left alone by the withdrawal of the others",
        "best_at_cap": "it scored best when the rounds ran out",
    }.get(str(lineage["how"]), str(lineage["how"]))


def _drift(drift: Mapping[str, Any] | None) -> str:
    if not drift or not drift["positions"]:
        return "How far the law has moved was not measured."
    return (
        f"Measured at {drift['positions']} positions of text that the parent wrote on prompts of a round "
        "that was not played:\n\n"
        "| | |\n|---|---|\n"
        f"| KL(parent, this model) | {drift['kl']:.3f} nats |\n"
        f"| total variation | {drift['tv']:.3f} |\n"
        f"| same most probable token | {drift['agreement']:.1%} |\n"
        f"| perplexity of that text | {drift['perplexity']:.2f} "
        f"(the parent's own: {drift['reference_perplexity']:.2f}) |"
    )


def _scores(scores: Mapping[str, Any]) -> str:
    if not scores:
        return "It played no round."
    interval = "" if scores["low"] is None else f" (95%: {scores['low']:.3f} to {scores['high']:.3f})"
    return (
        f"In round {scores['round']}, its last: hit rate {_number(scores['hit_rate'])}{interval}, "
        f"{_number(scores['acceptance_length'])} tokens a pass, {scores['accepted']} of "
        f"{scores['offered']} draft tokens kept."
    )


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"
