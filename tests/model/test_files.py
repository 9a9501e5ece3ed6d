"""Converted weights: made once, rounded once, and done without where they cannot be kept."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from arena.errors import ModelError
from arena.models import files
from arena.models.load import load_model


def _convert_in_process(gguf: Path, results: Any, arrived: Any) -> None:
    def convert(gguf: Path, folder: Path) -> None:
        with (gguf.parent / "conversions.log").open("a") as log:
            log.write(f"{os.getpid()}\n")
        (folder / "config.json").write_text("{")
        for _ in range(2):  # the other process has come as well
            assert arrived.acquire(timeout=30)
        (folder / "config.json").write_text("{}")

    arrived.release()
    folder = files.converted(gguf, convert)
    results.put((str(folder), (folder / "config.json").read_text()))


def test_two_processes_convert_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFT_ARENA_CACHE", str(tmp_path / "cache"))
    gguf = tmp_path / "toy.gguf"
    gguf.write_bytes(b"GGUF" * 1000)
    # The functions live in this file, which a spawn cannot import.
    context = multiprocessing.get_context("fork")
    results, arrived = context.Queue(), context.Semaphore(0)
    workers = [context.Process(target=_convert_in_process, args=(gguf, results, arrived)) for _ in range(2)]
    for worker in workers:
        worker.start()
    answers = [results.get(timeout=30) for _ in workers]
    for worker in workers:
        worker.join(30)
    assert answers[0] == answers[1]
    assert answers[0][1] == "{}"
    assert len((tmp_path / "conversions.log").read_text().split()) == 1
    left = [path.name for path in (tmp_path / "cache" / "models").iterdir() if path.suffix != ".lock"]
    assert left == [Path(answers[0][0]).name]


def test_without_locks_the_rename_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFT_ARENA_CACHE", str(tmp_path / "cache"))
    gguf = tmp_path / "toy.gguf"
    gguf.write_bytes(b"GGUF")

    def loses(source: Path, folder: Path) -> None:
        (folder / "config.json").write_text("mine")
        final = folder.parent / f"toy-{files._digest(source)}"
        final.mkdir()
        (final / "config.json").write_text("theirs")

    assert (files.converted(gguf, loses) / "config.json").read_text() == "theirs"


def test_failed_conversion_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFT_ARENA_CACHE", str(tmp_path / "cache"))
    gguf = tmp_path / "toy.gguf"
    gguf.write_bytes(b"not a gguf file")
    with pytest.raises(ModelError, match=r"cannot convert .*toy\.gguf"):
        files.resolve(str(gguf))
    assert [path.suffix for path in (tmp_path / "cache" / "models").iterdir()] == [".lock"]


def test_only_what_was_converted_here_is_rounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFT_ARENA_CACHE", str(tmp_path))
    made: list[tuple[Path, str]] = []

    def make(source: Path, folder: Path, dtype: str) -> None:
        made.append((source, dtype))
        (folder / "config.json").write_text("{}")

    monkeypatch.setattr(files, "_round", make)
    ours = tmp_path / "models" / "toy-0123456789abcdef"
    for other in (
        "owner/name",
        tmp_path / "toy",
        ours.with_name("toy"),
        ours.with_name(f"{ours.name}-bfloat16"),
    ):
        assert files.rounded(other, "bfloat16") == other
    assert files.rounded(ours, "float32") == ours
    assert not made
    half = files.rounded(ours, "bfloat16")
    assert half == files.rounded(ours, "bfloat16") == ours.with_name("toy-0123456789abcdef-bfloat16")
    assert Path(half, "config.json").is_file()
    assert made == [(ours, "bfloat16")]

    def full(source: Path, folder: Path, dtype: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "_round", full)
    assert files.rounded(ours, "float16") == ours
    ours.with_name(f"{ours.name}-float16.lock").unlink()
    ours.with_name(f"{ours.name}-float16.lock").mkdir()  # a cache that is not ours to write in
    assert files.rounded(ours, "float16") == ours
    ours.with_name(f"{ours.name}-float16.lock").rmdir()
    assert sorted(one.name for one in ours.parent.iterdir() if one.is_dir()) == [
        "toy-0123456789abcdef-bfloat16"
    ]


def test_without_a_home_a_folder_is_loaded_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(files, "cache_root", homeless)
    assert files.rounded(tmp_path, "bfloat16") == files.rounded(tmp_path, "float32") == tmp_path


def test_a_damaged_copy_is_passed_over(tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFT_ARENA_CACHE", str(tmp_path))
    ours = tmp_path / "models" / "toy-0123456789abcdef"
    tiny.save_pretrained(ours)

    def load() -> dict[str, torch.Tensor]:
        found: dict[str, torch.Tensor] = load_model(str(ours), dtype="bfloat16", device="cpu").state_dict()
        return found

    wanted = load()
    (half,) = ours.parent.glob("*-bfloat16/model.safetensors")
    assert all(torch.equal(wanted[name], one.to(torch.bfloat16)) for name, one in tiny.state_dict().items())
    for damage in (half.read_bytes()[:-64], b"", None):
        half.unlink()
        if damage is not None:
            half.write_bytes(damage)
        assert all(torch.equal(one, wanted[name]) for name, one in load().items())
    for file in ours.glob("*.safetensors"):
        file.unlink()
    with pytest.raises(ModelError, match="cannot load model"):
        load()


@pytest.mark.model
def test_rounded_weights_are_those_that_loading_rounds(
    smollm2: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = load_model("smollm2-135m", dtype="bfloat16", device="cpu")
    monkeypatch.setattr("arena.models.load.rounded", lambda folder, dtype: folder)
    plain = load_model("smollm2-135m", dtype="bfloat16", device="cpu")
    assert plain.state_dict().keys() == found.state_dict().keys()
    for name, weight in found.state_dict().items():
        assert weight.dtype == torch.bfloat16
        assert torch.equal(weight, plain.state_dict()[name]), name
    assert found.generation_config.to_dict() == plain.generation_config.to_dict()
    maps = Path("/proc/self/maps")
    if maps.is_file():
        assert str(files.rounded(files.resolve("smollm2-135m"), "bfloat16")) in maps.read_text()
    ids = torch.arange(5, 25)[None]
    with torch.no_grad():  # where weights lie does not move a bit
        assert torch.equal(found(ids).logits, plain(ids).logits)
