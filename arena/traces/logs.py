"""Reading what serving engines write: one JSON object a line, as the server sent it.

Three layouts are known by their fields. ``{"request": ..., "response": ...}`` with an
OpenAI-compatible chat or completion response (vLLM, SGLang, llama-server, hosted
APIs); vLLM's ``RequestOutput`` as JSON (``outputs``, with ``sampling_params`` beside
it); and ``{"prompt": ..., "text": ...}``. Token ids are taken where the log has them
(vLLM ``token_ids`` and ``prompt_token_ids``, llama-server's ``id``); else text is
tokenised again by the named model and checked for round-trip.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from arena.errors import ConfigError
from arena.sampling import check, is_greedy
from arena.traces.entries import Entry, entries_of
from arena.traces.laws import sampled_logprob
from arena.traces.records import Law, Loaded, Trace, numbered, prompt_hash
from arena.traces.words import Tokenizer, Unusable
from arena.types import Sampling

Stated = Literal["raw", "processed"]

_LAST_ID = 2**31 - 1

_BENDERS = {
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "repeat_penalty": 1.0,
    "typical_p": 1.0,
    "logit_bias": None,
    "response_format": None,
    "structured_outputs": None,
}
"""Request fields that bend the sampled law, each with the value that leaves it alone."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How a log is read.

    Attributes:
        tokenizer: Of the model that wrote it, where ids are absent or to be checked.
        stated: What the server's log-probabilities are said to be of.
        assume: The sampling of lines that do not say theirs.
    """

    tokenizer: Tokenizer | None = None
    stated: Stated = "raw"
    assume: Sampling | None = None


def read(path: Path, reading: Reading) -> Loaded:
    """Reads a JSONL log; what cannot be used is said line by line, never guessed.

    Raises:
        ConfigError: The file cannot be read, or no line of it can be used.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"log {str(path)!r}: {error}; expected a readable JSONL file.") from error
    found: list[Trace] = []
    unusable: list[str] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found.extend(_line(line, reading))
        except Unusable as error:
            unusable.append(f"{path.name}, line {number}: {error}")
    if not found:
        why = f" First: {unusable[0]}" if unusable else " The file is empty."
        raise ConfigError(f"log {str(path)!r}: none of its {len(unusable)} lines can be used.{why}")
    ends = {trace.tokens[-1] for trace in found if trace.finish == "stop" and trace.end_logged}
    known = tuple(sorted(ends | set(reading.tokenizer.eos if reading.tokenizer else ())))
    return Loaded(numbered([replace(trace, eos=known) for trace in found]), tuple(unusable))


def _line(line: bytes, reading: Reading) -> list[Trace]:
    try:
        body = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Unusable(f"not JSON: {error}") from None
    if not isinstance(body, dict):
        raise Unusable(f"expected an object, got {type(body).__name__}")
    try:
        if "outputs" in body:
            return _request_output(body, reading)
        if isinstance(body.get("response"), dict) or "choices" in body:
            return _openai(body, reading)
        if "prompt" in body and "text" in body:
            return [_plain(body, reading)]
    except ConfigError as error:
        raise Unusable(str(error)) from None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise Unusable(f"a field is missing or of another kind ({type(error).__name__}: {error})") from None
    raise Unusable("expected request and response, a RequestOutput, or prompt and text")


def _openai(body: Mapping[str, Any], reading: Reading) -> list[Trace]:
    request, response = body.get("request") or {}, body.get("response") or body
    if "error" in response and "choices" not in response:
        raise Unusable(f"the server answered with an error: {str(response['error'])[:120]}")
    prompt = _prompt(request, response, reading)
    settings = _settings(request, reading)
    source = "vllm" if str(response.get("system_fingerprint", "")).startswith("vllm") else "openai"
    return [
        _trace(choice, prompt, settings, reading, source, str(body.get("category", "")))
        for choice in response["choices"]
    ]


def _prompt(request: Mapping[str, Any], response: Mapping[str, Any], reading: Reading) -> tuple[int, ...]:
    choice = response["choices"][0]
    ids = response.get("prompt_token_ids") or choice.get("prompt_token_ids")
    raw = request.get("prompt")
    if ids is None and isinstance(raw, list) and raw and all(isinstance(token, int) for token in raw):
        ids = raw
    if ids is None:
        if reading.tokenizer is None:
            raise Unusable("it has no prompt token ids; name the model whose tokenizer wrote it (--model)")
        messages = request.get("messages")
        ids = reading.tokenizer.encode(messages, raw if isinstance(raw, str) else None)
        told = (response.get("usage") or {}).get("prompt_tokens")
        if told is not None and told != len(ids):
            raise Unusable(
                f"the prompt is {len(ids)} tokens here and {told} in the log; another tokenizer or template"
            )
    if not ids:
        raise Unusable("its prompt is empty")
    return tuple(int(token) for token in ids)


@dataclass(frozen=True, slots=True)
class _Settings:
    sampling: Sampling
    max_tokens: int | None
    warped: str


def _settings(request: Mapping[str, Any], reading: Reading) -> _Settings:
    if not request:
        if reading.assume is None:
            raise Unusable("it does not say how it was sampled; state it with --assume")
        return _Settings(reading.assume, None, "")
    temperature = request.get("temperature")
    top_p, top_k = request.get("top_p"), request.get("top_k")
    sampling = check(
        Sampling(
            1.0 if temperature is None else float(temperature),
            max(0, int(top_k or 0)),
            1.0 if top_p is None else float(top_p),
        )
    )
    bent = [
        name
        for name, idle in _BENDERS.items()
        if request.get(name) is not None and request[name] not in (idle, {}, {"type": "text"})
    ]
    budget = request.get("max_completion_tokens") or request.get("max_tokens") or request.get("n_predict")
    return _Settings(sampling, None if budget is None else int(budget), ", ".join(bent))


def _trace(
    choice: Mapping[str, Any],
    prompt: tuple[int, ...],
    settings: _Settings,
    reading: Reading,
    source: str,
    category: str,
) -> Trace:
    text = (choice.get("message") or {}).get("content") if "message" in choice else choice.get("text")
    entries = entries_of(choice.get("logprobs"))
    ids = choice.get("token_ids") or [entry.id for entry in entries]
    if not ids or any(token is None for token in ids):
        if reading.tokenizer is None:
            raise Unusable("it has no output token ids; name the model whose tokenizer wrote it (--model)")
        ids = reading.tokenizer.again(str(text), [entry.text for entry in entries])
    elif reading.tokenizer is not None:
        reading.tokenizer.confirm(ids, text)
    if any(isinstance(token, bool) or not 0 <= int(token) <= _LAST_ID for token in (*prompt, *ids)):
        raise Unusable(f"a token id is outside 0 to {_LAST_ID}")
    if entries and len(entries) != len(ids):
        raise Unusable(f"{len(entries)} log-probabilities stand beside {len(ids)} tokens")
    logprobs, law = _law(entries, settings.sampling, reading)
    finish = {"stop": "stop", "length": "length", "eos": "stop"}.get(str(choice.get("finish_reason")), "")
    by_text = isinstance(choice.get("stop_reason"), str)
    return Trace(
        prompt_id=prompt_hash(prompt),
        prompt=prompt,
        tokens=tuple(int(token) for token in ids),
        logprobs=logprobs,
        law=law,
        sampling=settings.sampling,
        warped=settings.warped,
        finish=finish,
        end_logged=finish == "stop" and not by_text and _ends(ids, entries, text, reading.tokenizer),
        stopped_by_text=finish == "stop" and by_text,
        max_tokens=settings.max_tokens or (len(ids) if finish == "length" else None),
        prefilled=True,
        fingerprint=reading.tokenizer.fingerprint if reading.tokenizer else "",
        source=source,
        category=category,
    )


def _ends(ids: Sequence[int], entries: Sequence[Entry], text: Any, tokenizer: Tokenizer | None) -> bool:
    """Whether the last logged token is the one that ended the text: then the text does not show it."""
    if tokenizer is not None:
        return ids[-1] in tokenizer.eos
    last = entries[-1].text if entries else None
    return last is not None and isinstance(text, str) and (not last or not text.endswith(last))


def _law(entries: Sequence[Entry], sampling: Sampling, reading: Reading) -> tuple[tuple[float, ...], Law]:
    values = [entry.logprob for entry in entries]
    if not entries or any(value is None or math.isnan(value) or value > 1e-6 for value in values):
        return (), "none"
    known = tuple(min(0.0, float(value)) for value in values if value is not None)
    if reading.stated == "processed" or all(entry.processed for entry in entries):
        return known, "sampled"
    if is_greedy(sampling) or sampling == Sampling():
        return known, "raw"
    warped = [sampled_logprob(v, entry.tops, sampling) for v, entry in zip(known, entries, strict=True)]
    if any(one is None for one in warped):
        return known, "raw"
    return tuple(one[0] for one in warped if one is not None), "sampled"


def _request_output(body: Mapping[str, Any], reading: Reading) -> list[Trace]:
    """Reads vLLM's ``RequestOutput``; its log-probabilities are one map of ids a token."""
    prompt = tuple(int(token) for token in body.get("prompt_token_ids") or ())
    if not prompt:
        raise Unusable("it has no prompt_token_ids")
    settings = _settings(body.get("sampling_params") or {}, reading)
    found = []
    for output in body["outputs"]:
        content = []
        for token, known in zip(output["token_ids"], output.get("logprobs") or (), strict=False):
            values = {int(name): value for name, value in known.items()}
            tops = [{"token": str(name), **value} for name, value in values.items()]
            own = values[int(token)]
            content.append(
                {"id": token, "token": str(token), "logprob": own["logprob"], "top_logprobs": tops}
            )
        choice = {**output, "logprobs": {"content": content} if content else None}
        trace = _trace(choice, prompt, settings, reading, "vllm", str(body.get("category", "")))
        ended = trace.finish == "stop" and not trace.stopped_by_text
        found.append(replace(trace, end_logged=ended))  # vLLM keeps the end token among the ids
    return found


def _plain(body: Mapping[str, Any], reading: Reading) -> Trace:
    """Reads bare text: enough for a greedy target, or for point masses."""
    if reading.tokenizer is None:
        raise Unusable("plain text needs the model whose tokenizer wrote it (--model)")
    settings = _settings(body if "temperature" in body else {}, reading)
    prompt = tuple(reading.tokenizer.encode(None, str(body["prompt"])))
    if not prompt:
        raise Unusable("its prompt is empty")
    tokens = tuple(reading.tokenizer.again(str(body["text"]), []))
    if not tokens:
        raise Unusable("its text is empty")
    return Trace(
        prompt_id=prompt_hash(prompt),
        prompt=prompt,
        tokens=tokens,
        sampling=settings.sampling,
        max_tokens=settings.max_tokens,
        prefilled=True,
        fingerprint=reading.tokenizer.fingerprint,
        source="text",
        category=str(body.get("category", "")),
    )
