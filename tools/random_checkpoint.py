#!/usr/bin/env python3
"""A checkpoint of a config.json with random weights, to measure with; the same numbers as GGUF for other engines.

usage: random_checkpoint.py CONFIG OUT [--seed N] [--gguf bf16|q8_0]

CONFIG is a Qwen3-MoE config.json; OUT becomes a folder with config.json and model.safetensors (bf16). A weight is drawn
so that a layer keeps the size of its inputs. Numbers are slices of one drawn pool, at another place for every tensor:
drawing a billion would take minutes and measure no differently. Needs `pip install numpy`, for --gguf also `gguf`.
"""

import argparse
import json
import math
import pathlib
import shutil
import struct

import numpy as np

POOL = 1 << 24


class Numbers:
    """Normal numbers as bf16, taken from a pool at places that follow from the seed and the tensor's number."""

    def __init__(self, seed):
        self.seed = seed
        self.pool = np.random.default_rng(seed).standard_normal(POOL, dtype=np.float32)
        self.rounded = {}  # by scale

    def bf16(self, tensor, count, scale):
        if scale not in self.rounded:
            bits = (self.pool * np.float32(scale)).view(np.uint32)
            self.rounded[scale] = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
        start = int(np.random.default_rng([self.seed, tensor]).integers(POOL))
        pool = self.rounded[scale]
        if start + count <= POOL:
            return pool[start : start + count]
        return np.resize(np.concatenate([pool[start:], pool[:start]]), count)


def tensors_of(config):
    """Names as published, shapes, and the standard deviation; None is a norm of ones."""
    hidden, width, head = config["hidden_size"], config["moe_intermediate_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden), 1.0
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", (hidden,), None
        for name, rows, cols in (("q", queries, hidden), ("k", keys, hidden), ("v", keys, hidden), ("o", hidden, queries)):
            yield f"{prefix}self_attn.{name}_proj.weight", (rows, cols), 1 / math.sqrt(cols)
        yield prefix + "self_attn.q_norm.weight", (head,), None
        yield prefix + "self_attn.k_norm.weight", (head,), None
        yield prefix + "post_attention_layernorm.weight", (hidden,), None
        yield prefix + "mlp.gate.weight", (config["num_experts"], hidden), 1 / math.sqrt(hidden)
        for expert in range(config["num_experts"]):
            for name, rows, cols in (("gate", width, hidden), ("up", width, hidden), ("down", hidden, width)):
                yield f"{prefix}mlp.experts.{expert}.{name}_proj.weight", (rows, cols), 1 / math.sqrt(cols)
    yield "model.norm.weight", (hidden,), None
    if not config.get("tie_word_embeddings", False):
        yield "lm_head.weight", (config["vocab_size"], hidden), 1 / math.sqrt(hidden)


def values_of(numbers, at, shape, scale):
    count = math.prod(shape)
    return np.full(count, 0x3F80, np.uint16) if scale is None else numbers.bf16(at, count, scale)


def write_safetensors(path, config, numbers):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, shape, _ in tensors_of(config):
        size = 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 64 + 56)  # 8 bytes of length stand before it: tensors begin at cache lines
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for at, (_, shape, scale) in enumerate(tensors_of(config)):
            out.write(values_of(numbers, at, shape, scale).tobytes())


GGUF_NAMES = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
              "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
              "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate": "ffn_gate_inp",
              "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def write_gguf(path, config, numbers, kind):
    """kind: bf16 or q8_0. Norms and routers stay f32, as llama.cpp's own converter leaves them."""
    import gguf
    arch = "qwen3moe"
    writer = gguf.GGUFWriter(str(path), arch)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_expert_count(config["num_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("none")

    def add(name, shape, bits):
        whole = (bits.astype(np.uint32) << 16).view(np.float32).reshape(shape)
        if len(shape) == 1 or "ffn_gate_inp" in name:
            writer.add_tensor(name, whole)
        elif kind == "bf16":
            writer.add_tensor(name, bits.reshape(shape).view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            q8 = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quantize(whole, q8), raw_dtype=q8)

    experts = {}
    for at, (name, shape, scale) in enumerate(tensors_of(config)):
        bits = values_of(numbers, at, shape, scale)
        parts = name.removesuffix(".weight").split(".")
        if "experts" not in parts:
            layered = parts[:2] == ["model", "layers"]
            known = GGUF_NAMES[".".join(parts[3:] if layered else parts)]
            add(f"blk.{parts[2]}.{known}.weight" if layered else f"{known}.weight", shape, bits)
            continue
        kept = experts.setdefault(parts[-1], [])
        kept.append(bits)
        if len(kept) == config["num_experts"]:
            known = parts[-1].removesuffix("_proj")
            add(f"blk.{parts[2]}.ffn_{known}_exps.weight", (len(kept), *shape), np.concatenate(kept))
            kept.clear()
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gguf", choices=["bf16", "q8_0"], action="append", default=[],
                        help="also write OUT/model-KIND.gguf; may be given twice")
    args = parser.parse_args()
    config = json.loads(args.config.read_text())
    if config.get("model_type") != "qwen3_moe":
        parser.error(f"{args.config}: model_type is {config.get('model_type')!r}, handled is 'qwen3_moe'")
    args.out.mkdir(parents=True, exist_ok=True)
    if args.config.resolve() != (args.out / "config.json").resolve():
        shutil.copyfile(args.config, args.out / "config.json")
    numbers = Numbers(args.seed)
    write_safetensors(args.out / "model.safetensors", config, numbers)
    for kind in args.gguf:
        write_gguf(args.out / f"model-{kind}.gguf", config, numbers, kind)


if __name__ == "__main__":
    main()
