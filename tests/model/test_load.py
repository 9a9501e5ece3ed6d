"""Loading: names, refusals with the reason, tokens, and layer-skip."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from arena.errors import ModelError
from arena.models import files
from arena.models.layers import layer_depths, skip_layers
from arena.models.load import auto_dtype, load_model, unsupported
from arena.models.tokens import encode, eos_ids, fingerprint, vocab_fingerprint, vocab_size

CHAT = [{"role": "user", "content": "Hi"}]


def test_package_imports_neither_torch_nor_transformers() -> None:
    code = (
        "import sys, arena.models.files, arena.models.tokens, arena.models.layers, arena.models.load;"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert files.resolve("owner/some-model") == "owner/some-model"
    with pytest.raises(ModelError, match="no model folder"):
        files.resolve("./nowhere/at/all")
    with pytest.raises(ModelError, match="no GGUF file"):
        files.resolve("nowhere.gguf")
    with pytest.raises(ModelError, match=r"no config\.json"):
        files.resolve(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    assert files.resolve(str(tmp_path)) == tmp_path
    monkeypatch.setattr(files, "_PACKAGE", "no_such_package_at_all")
    assert files.resolve("smollm2-135m") == "HuggingFaceTB/SmolLM2-135M-Instruct"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("DRAFT_ARENA_CACHE", raising=False)
    assert files.cache_root() == tmp_path / "draft-arena"


def test_pickles_are_not_loaded(tiny: Any, tmp_path: Path) -> None:
    tiny.save_pretrained(tmp_path)
    assert load_model(str(tmp_path), dtype="float32", device="cpu").config.vocab_size == 97
    torch.save(tiny.state_dict(), tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="safetensors"):
        load_model(str(tmp_path))
    with pytest.raises(ModelError, match="Did you mean 'bfloat16'"):
        load_model(str(tmp_path), dtype="bfloat")


def test_auto_dtype() -> None:
    assert auto_dtype("cpu") in ("float32", "bfloat16")


def test_models_without_plain_attention_are_refused() -> None:
    from transformers import AutoConfig

    def reason(kind: str, **settings: Any) -> str:
        return unsupported(AutoConfig.for_model(kind, **settings))

    assert reason("llama") == ""
    assert reason("qwen2") == ""
    assert reason("gpt2") == ""
    assert reason("mistral", sliding_window=None) == ""
    assert reason("mistral", sliding_window=4096, max_position_embeddings=4096) == ""
    assert "sliding_attention over 4096 tokens of 32768" in reason(
        "mistral", sliding_window=4096, max_position_embeddings=32768
    )
    assert "sliding_attention" in reason("gemma3_text")
    assert "recurrent" in reason("mamba")
    assert "encoder-decoder" in reason("t5")
    assert "ALiBi" in reason("falcon", alibi=True)
    dynamic = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
    assert "longest lane" in reason("llama", rope_parameters=dynamic)


@pytest.mark.parametrize(
    ("layers", "drop", "dropped"),
    [
        (30, (0.2667, 0.6), range(8, 18)),
        (30, (0.4, 0.5334), range(12, 16)),
        (20, (0.2667, 0.6), range(5, 12)),
        (4, (0.5, 0.5), range(0)),
    ],
)
def test_layer_depths(layers: int, drop: tuple[float, float], dropped: range) -> None:
    assert layer_depths(layers, drop) == tuple(index for index in range(layers) if index not in dropped)


def test_layer_depths_refusals() -> None:
    with pytest.raises(ModelError, match="leave none"):
        layer_depths(3, (0.0, 1.0))
    with pytest.raises(ModelError, match="from <= to"):
        layer_depths(3, (0.7, 0.2))


@pytest.mark.parametrize("share", [False, True])
def test_skip_layers_equals_a_model_built_by_hand(tiny: Any, tmp_path: Path, share: bool) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    small = skip_layers(tiny, [0, 3], share=share)
    assert small.config.num_hidden_layers == 2
    assert tiny.config.num_hidden_layers == 4
    assert [layer.self_attn.layer_idx for layer in small.model.layers] == [0, 1]
    assert [layer.self_attn.layer_idx for layer in tiny.model.layers] == [0, 1, 2, 3]
    shared = small.lm_head.weight.data_ptr() == tiny.lm_head.weight.data_ptr()
    assert shared == share
    config = LlamaConfig(**{**tiny.config.to_dict(), "num_hidden_layers": 2})
    by_hand = LlamaForCausalLM(config).eval()
    state = {
        key.replace("layers.3.", "layers.1."): value
        for key, value in tiny.state_dict().items()
        if not key.startswith(("model.layers.1.", "model.layers.2."))
    }
    by_hand.load_state_dict(state)
    ids = torch.arange(12)[None]
    with torch.no_grad():
        want = by_hand(input_ids=ids).logits
        torch.testing.assert_close(small(input_ids=ids).logits, want)  # its own cache indices must fit too
        small.save_pretrained(tmp_path)
        again = load_model(str(tmp_path), dtype="float32", device="cpu")
        torch.testing.assert_close(again(input_ids=ids).logits, want)


def test_skip_layers_renumbers_lists_of_layers() -> None:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=11,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    small = skip_layers(Qwen2ForCausalLM(config), [0, 2])
    assert list(small.config.layer_types) == ["full_attention"] * 2
    with pytest.raises(ModelError, match="rising indices"):
        skip_layers(small, [1, 0])


class FakeTokenizer:
    """A tokenizer without a chat template that closes every text."""

    chat_template: str | None = None
    eos_token = "<e>"
    eos_token_id = 0

    def get_vocab(self) -> dict[str, int]:
        return {"<e>": 0, "a": 1, "b": 2}

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        ids = [self.get_vocab().get(letter, 7) for letter in text]
        return {"input_ids": [*ids, 0] if add_special_tokens else ids}


def test_encode_without_template() -> None:
    tokenizer = FakeTokenizer()
    assert encode(tokenizer, text="ab") == [1, 2]
    assert encode(tokenizer, [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]) == [
        1,
        7,
        2,
    ]
    assert encode(tokenizer, text="") == []
    with pytest.raises(ValueError, match="exactly one"):
        encode(tokenizer)
    assert eos_ids(tokenizer=tokenizer) == (0,)
    assert vocab_size(tokenizer) == 3
    other = FakeTokenizer()
    assert vocab_fingerprint(other) == vocab_fingerprint(tokenizer)
    other.get_vocab = lambda: {"<e>": 0, "a": 2, "b": 1}  # type: ignore[method-assign]
    assert vocab_fingerprint(other) != vocab_fingerprint(tokenizer)


@pytest.mark.model
def test_smollm2_tokens(smollm2: tuple[Any, Any]) -> None:
    model, tokenizer = smollm2
    assert tokenizer.convert_ids_to_tokens(list(eos_ids(model, tokenizer))) == ["<|im_end|>"]
    assert eos_ids(None, tokenizer) == eos_ids(model, tokenizer)
    ids = encode(tokenizer, CHAT)
    assert tokenizer.decode(ids) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert ids[0] == tokenizer.convert_tokens_to_ids("<|im_start|>")
    assert tokenizer.tokenize("a\n\n 12") == ["a", "ĊĊĠ", "1", "2"]
    assert tokenizer.decode(encode(tokenizer, text="one 42, two!")) == "one 42, two!"
    assert vocab_size(tokenizer) == model.config.vocab_size == 49152
    assert fingerprint("smollm2-135m") == vocab_fingerprint(tokenizer)
    assert not any(weight.requires_grad for weight in model.parameters())
    assert not model.training


@pytest.mark.model
def test_smollm2_answers(smollm2: tuple[Any, Any]) -> None:
    model, tokenizer = smollm2
    ids = encode(tokenizer, [{"role": "user", "content": "What is the capital of France?"}])
    with torch.no_grad():
        out = model.generate(torch.tensor([ids]), max_new_tokens=24, do_sample=False)
    assert "Paris" in tokenizer.decode(out[0, len(ids) :])
