"""Makes a model folder that vLLM and transformers load of a GGUF file of a Llama model: float32 weights, configuration,
tokenizer. A folder that is there and whole is left as it is."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

import numpy
from gguf_file import Gguf, GgufError
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

#: The file that is written last.
STAMP = "made.json"
#: Of metadata's `tokenizer.ggml.token_type`: a token that is no text.
CONTROL = 3

#: Names within a layer, in GGUF and in the folder.
IN_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def convert(source: Path, folder: Path) -> None:
    """Makes the folder. Raises `GgufError` for a file that is none, or of another architecture."""
    stamp = {"source": source.name, "bytes": source.stat().st_size}
    if (folder / STAMP).exists() and json.loads((folder / STAMP).read_text()) == stamp:
        return
    file = Gguf(source)
    if (architecture := file.metadata.get("general.architecture")) != "llama":
        raise GgufError(f"the architecture is {architecture}, not llama")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    save_file(weights(file), folder / "model.safetensors", {"format": "pt"})
    write_json(folder / "config.json", configuration(file))
    write_tokenizer(file, folder)
    write_json(folder / STAMP, stamp)


def weights(file: Gguf) -> dict[str, numpy.ndarray]:
    """All weights under their names in the folder."""
    of_llama = "llama."
    heads = file.metadata[of_llama + "attention.head_count"]
    kv_heads = file.metadata[of_llama + "attention.head_count_kv"]
    found = {
        "model.embed_tokens.weight": file.tensor("token_embd.weight"),
        "model.norm.weight": file.tensor("output_norm.weight"),
    }
    if "output.weight" in file.entries:
        found["lm_head.weight"] = file.tensor("output.weight")
    for layer in range(file.metadata[of_llama + "block_count"]):
        for theirs, ours in IN_LAYER.items():
            tensor = file.tensor(f"blk.{layer}.{theirs}.weight")
            if theirs in ("attn_q", "attn_k"):
                tensor = halves_apart(tensor, heads if theirs == "attn_q" else kv_heads)
            found[f"model.layers.{layer}.{ours}.weight"] = tensor
    return found


def halves_apart(rows: numpy.ndarray, heads: int) -> numpy.ndarray:
    """GGUF has the two rows that a rotation mixes beside each other; here they are half a head apart."""
    each = len(rows) // heads
    pairs = rows.reshape(heads, each // 2, 2, -1)
    return numpy.ascontiguousarray(pairs.transpose(0, 2, 1, 3)).reshape(rows.shape)


def configuration(file: Gguf) -> dict[str, object]:
    """What config.json says."""

    def of(key: str) -> object:
        return file.metadata["llama." + key]

    width, heads = of("embedding_length"), of("attention.head_count")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(file.metadata["tokenizer.ggml.tokens"]),
        "hidden_size": width,
        "intermediate_size": of("feed_forward_length"),
        "num_hidden_layers": of("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": of("attention.head_count_kv"),
        "head_dim": width // heads,
        "hidden_act": "silu",
        "max_position_embeddings": of("context_length"),
        "rms_norm_eps": of("attention.layer_norm_rms_epsilon"),
        "rope_theta": of("rope.freq_base"),
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": "output.weight" not in file.entries,
        "bos_token_id": file.metadata["tokenizer.ggml.bos_token_id"],
        "eos_token_id": file.metadata["tokenizer.ggml.eos_token_id"],
        "torch_dtype": "float32",
    }


def write_tokenizer(file: Gguf, folder: Path) -> None:
    """The byte-pair tokenizer of the file."""
    tokens = file.metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in file.metadata["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, merges))
    # What the file calls `smollm`: digits one by one, then bytes.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = file.metadata["tokenizer.ggml.token_type"]
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True) for token, kind in zip(tokens, kinds) if kind == CONTROL]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    named = {
        f"{name}_token": tokens[file.metadata[key]]
        for name in ("bos", "eos")
        if (key := f"tokenizer.ggml.{name}_token_id") in file.metadata
    }
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": file.metadata["llama.context_length"],
            "clean_up_tokenization_spaces": False,
            "chat_template": file.metadata.get("tokenizer.chat_template"),
            **named,
        },
    )


def write_json(path: Path, value: object) -> None:
    """Writes a JSON file."""
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    """Converts the file given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, help="the GGUF file")
    parser.add_argument("folder", type=Path, help="the folder to make")
    arguments = parser.parse_args()
    try:
        convert(arguments.source, arguments.folder)
    except (GgufError, OSError, KeyError) as why:
        print(f"RESULT FAIL: {why!r}")
        return 1
    print("RESULT PASS")
    return 0


if __name__ == "__main__":
    sys.exit(main())
