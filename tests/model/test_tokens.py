"""A vocabulary's fingerprint, kept from one start to the next."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from arena.models import tokens
from arena.models.files import resolve
from arena.models.tokens import fingerprint, load_tokenizer, vocab_fingerprint


def _words(folder: Path, n: int) -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    words = {f"w{i}": i for i in range(n)}
    PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(words, unk_token="w0"))).save_pretrained(
        folder
    )
    (folder / "config.json").write_text("{}")


def test_a_fingerprint_is_kept_until_the_tokenizer_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAFT_ARENA_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "model"
    _words(folder, 20)
    read: list[str] = []

    def load(name: str, **options: Any) -> Any:
        read.append(name)
        return load_tokenizer(name, **options)

    monkeypatch.setattr(tokens, "load_tokenizer", load)

    def again() -> str:
        tokens._fingerprint.cache_clear()  # as a new process would find it
        return fingerprint(str(folder))

    first = again()
    assert first == vocab_fingerprint(load_tokenizer(str(folder)))
    assert (again(), len(read)) == (first, 1)
    (kept,) = (tmp_path / "cache" / "vocabularies").iterdir()
    kept.write_bytes(b"\xff" + kept.read_bytes()[:7])  # cut short by a crash
    assert (again(), again(), len(read)) == (first, first, 2)
    _words(folder, 21)
    assert (again() != first, len(read)) == (True, 3)
    kept = next(one for one in kept.parent.iterdir() if one != kept)
    kept.unlink()
    kept.mkdir()  # neither to be read nor to be written
    assert (again() != first, len(read)) == (True, 4)
    (tmp_path / "file").touch()
    monkeypatch.setenv("DRAFT_ARENA_CACHE", str(tmp_path / "file"))  # nothing can be written below a file
    assert (again() != first, again() != first, len(read)) == (True, True, 6)


def test_whatever_a_tokenizer_is_read_from_is_in_the_key(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    seen = {tokens._known(tmp_path)}
    (tmp_path / "model.safetensors").write_bytes(b"others")
    assert tokens._known(tmp_path) in seen
    for name in ("merges.txt", "bpe.codes", "source.spm", "tokenizer.model", "chat_template.jinja"):
        (tmp_path / name).write_text("a")
        seen.add(tokens._known(tmp_path))
        (tmp_path / name).write_text("ab")
        seen.add(tokens._known(tmp_path))
    assert len(seen) == 11


def test_without_a_home_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(tokens, "cache_root", homeless)
    assert tokens._known(tmp_path) is None


@pytest.mark.model
def test_a_known_models_experiment_is_checked_without_torch(
    smollm2: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = resolve("smollm2-135m")
    monkeypatch.setenv("DRAFT_ARENA_CACHE", str(tmp_path))
    tokens._fingerprint.cache_clear()
    fingerprint(str(folder))  # from now on it is known
    code = (
        "import sys; from arena import config, roster;"
        f"roster.resolve(config.load('story', ['verifier.model={folder}']));"
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert out.stdout.strip() == "[]", out.stderr
