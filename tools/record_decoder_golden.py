#!/usr/bin/env python3
"""An independent float64 forward of decoders with grouped-query attention, in NumPy.

usage: record_decoder_golden.py check     compares it with the recorded references of tests/golden
       record_decoder_golden.py record    writes the checkpoints and references of VARIANTS to tests/golden

The references that `check` looks at came from Hugging Face transformers. The variants use what those checkpoints do
not: biases on all projections, linear and yarn rope, tied weights under heads that do not divide, experts in one
tensor, dense layers between sparse ones, unnormalised routing, groups of experts. Needs `pip install numpy`.
"""

import json
import math
import pathlib
import struct
import sys

import numpy as np

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests/golden"
CHECKED = ["llama", "qwen3", "qwen3-moe", "glm4-moe"]
COMMON = {"hidden_size": 48, "intermediate_size": 80, "vocab_size": 160, "max_position_embeddings": 512, "rms_norm_eps": 1e-5,
          "hidden_act": "silu", "eos_token_id": 2}
VARIANTS = {
    "llama-variant": COMMON | {
        "model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 12,
        "attention_bias": True, "tie_word_embeddings": True, "rope_theta": 10000.0, "rope_scaling": {"type": "linear", "factor": 4.0}},
    "qwen3-moe-variant": COMMON | {
        "model_type": "qwen3_moe", "num_hidden_layers": 4, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16,
        "num_experts": 12, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "norm_topk_prob": False, "decoder_sparse_step": 2,
        "mlp_only_layers": [], "attention_bias": True,
        "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}},
    "glm4-moe-variant": COMMON | {
        "model_type": "glm4_moe", "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 16,
        "n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 3, "moe_intermediate_size": 24, "n_group": 4,
        "topk_group": 2, "norm_topk_prob": True, "routed_scaling_factor": 2.5, "first_k_dense_replace": 1, "use_qk_norm": False,
        "attention_bias": False, "rope_theta": 10000.0},
}


def read_checkpoint(folder):
    data = (folder / "model.safetensors").read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + at for at in entry["data_offsets"])
        raw = data[begin:end]
        if entry["dtype"] == "BF16":
            values = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(raw, "<f4")
        tensors[name] = values.astype(np.float64).reshape(entry["shape"])
    return tensors


def write_checkpoint(folder, tensors):
    """Weights as bf16 (they are exact in it), the router's bias as f32."""
    header, body = {}, b""
    for name, values in sorted(tensors.items()):
        single = values.astype("<f4")
        is_f32 = name.endswith("e_score_correction_bias")
        raw = single.tobytes() if is_f32 else (single.view("<u4") >> 16).astype("<u2").tobytes()
        header[name] = {"dtype": "F32" if is_f32 else "BF16", "shape": list(values.shape), "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)


def rope_angles(config, positions):
    parameters = config.get("rope_parameters") or config.get("rope_scaling") or {}
    base = parameters.get("rope_theta", config.get("rope_theta", 10000.0))
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    partial = 0.5 if config["model_type"] == "glm4_moe" else 1.0
    dim = int(config["head_dim"] * parameters.get("partial_rotary_factor", config.get("partial_rotary_factor", partial)))
    theta = base ** (-2.0 * np.arange(dim // 2) / dim)
    factor, original, scale = parameters.get("factor", 1.0), parameters.get("original_max_position_embeddings"), 1.0
    if kind == "linear":
        theta = theta / factor
    elif kind == "llama3":
        low, high = parameters["low_freq_factor"], parameters["high_freq_factor"]
        wavelength = 2 * np.pi / theta
        blend = (original / wavelength - low) / (high - low)
        blended = (1 - blend) * theta / factor + blend * theta
        theta = np.where(wavelength < original / high, theta, np.where(wavelength > original / low, theta / factor, blended))
    elif kind == "yarn":
        def pair(turns):
            return dim * math.log(original / (2 * math.pi * turns)) / (2 * math.log(base))
        low, high = max(math.floor(pair(32)), 0), min(math.ceil(pair(1)), dim - 1)
        ramp = np.clip((np.arange(dim // 2) - low) / (high - low), 0, 1)
        theta = theta * (1 - ramp) + theta / factor * ramp
        scale = 0.1 * math.log(factor) + 1
    return np.outer(positions, theta), scale


def rotate(x, angles, scale):
    """x: [rows, heads, head_dim]; pairs are (i, i + dim / 2) of the first dim values."""
    half = angles.shape[1]
    cos, sin = np.cos(angles)[:, None] * scale, np.sin(angles)[:, None] * scale
    a, b = x[..., :half], x[..., half:2 * half]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, x[..., 2 * half:]], axis=-1)


def norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def linear(weights, name, x):
    y = x @ weights[name + ".weight"].T
    return y + weights[name + ".bias"] if name + ".bias" in weights else y


def silu(x):
    return x / (1 + np.exp(-x))


def attention(config, weights, prefix, x):
    rows, dim = len(x), config["head_dim"]
    q, k, v = (linear(weights, f"{prefix}{name}_proj", x).reshape(rows, -1, dim) for name in "qkv")
    if prefix + "q_norm.weight" in weights:
        q = norm(q, weights[prefix + "q_norm.weight"], config["rms_norm_eps"])
        k = norm(k, weights[prefix + "k_norm.weight"], config["rms_norm_eps"])
    angles, scale = rope_angles(config, np.arange(rows))
    q, k = rotate(q, angles, scale), rotate(k, angles, scale)
    group = config["num_attention_heads"] // config["num_key_value_heads"]
    out = np.empty_like(q)
    for head in range(q.shape[1]):
        score = q[:, head] @ k[:, head // group].T / math.sqrt(dim)
        score = np.where(np.tril(np.ones((rows, rows), bool)), score, -np.inf)
        weight = np.exp(score - score.max(-1, keepdims=True))
        out[:, head] = weight / weight.sum(-1, keepdims=True) @ v[:, head // group]
    return linear(weights, prefix + "o_proj", out.reshape(rows, -1))


def ffn(weights, prefix, x):
    return linear(weights, prefix + "down_proj", silu(linear(weights, prefix + "gate_proj", x)) * linear(weights, prefix + "up_proj", x))


def routed(config, weights, prefix, row):
    """[(expert, weight)] of one row."""
    logits, top = row @ weights[prefix + "gate.weight"].T, config["num_experts_per_tok"]
    if config["model_type"] == "qwen3_moe":
        score = np.exp(logits - logits.max())
        score = choice = score / score.sum()
        allowed = range(len(score))
    else:
        score = 1 / (1 + np.exp(-logits))
        choice = score + weights[prefix + "gate.e_score_correction_bias"]
        groups = choice.reshape(config["n_group"], -1)
        best = np.argsort(-np.sort(groups)[:, -2:].sum(1), kind="stable")[:config["topk_group"]]
        allowed = [e for e in range(len(score)) if e // groups.shape[1] in best]
    chosen = sorted(allowed, key=lambda e: (-choice[e], e))[:top]
    total = sum(score[e] for e in chosen) if config.get("norm_topk_prob", config["model_type"] == "glm4_moe") else 1
    return [(e, score[e] / total * config.get("routed_scaling_factor", 1)) for e in chosen]


def expert(config, weights, prefix, number, row):
    if prefix + "experts.gate_up_proj" in weights:
        both, width = weights[prefix + "experts.gate_up_proj"][number] @ row, config["moe_intermediate_size"]
        return weights[prefix + "experts.down_proj"][number] @ (silu(both[:width]) * both[width:])
    return ffn(weights, f"{prefix}experts.{number}.", row)


def feed_forward(config, weights, prefix, x):
    if prefix + "gate.weight" not in weights:
        return ffn(weights, prefix, x)
    y = np.array([sum(p * expert(config, weights, prefix, e, row) for e, p in routed(config, weights, prefix, row)) for row in x])
    return y + ffn(weights, prefix + "shared_experts.", x) if prefix + "shared_experts.up_proj.weight" in weights else y


def forward(config, weights, ids):
    """Logits of every position, [rows, vocab]."""
    h, eps = weights["model.embed_tokens.weight"][ids], config["rms_norm_eps"]
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        h = h + attention(config, weights, prefix + "self_attn.", norm(h, weights[prefix + "input_layernorm.weight"], eps))
        h = h + feed_forward(config, weights, prefix + "mlp.", norm(h, weights[prefix + "post_attention_layernorm.weight"], eps))
    head = weights["model.embed_tokens.weight"] if config.get("tie_word_embeddings") else weights["lm_head.weight"]
    return norm(h, weights["model.norm.weight"], eps) @ head.T


def drawn_weights(config, seed):
    rng, tensors, hidden = np.random.default_rng(seed), {}, config["hidden_size"]

    def add(name, *shape, mean=0.0, spread=None):
        values = (mean + rng.standard_normal(shape) * (spread or 1 / math.sqrt(shape[-1]))).astype("<f4")
        bits = values.view("<u4") if name.endswith("correction_bias") else values.view("<u4") & 0xFFFF0000  # exact in bf16
        tensors[name] = bits.view("<f4").astype(np.float64)

    def add_ffn(prefix, width):
        for name, shape in (("gate_proj", (width, hidden)), ("up_proj", (width, hidden)), ("down_proj", (hidden, width))):
            add(f"{prefix}{name}.weight", *shape)

    def add_experts(prefix, count, width):
        add(prefix + "gate.weight", count, hidden)
        if config["model_type"] == "qwen3_moe":
            add(prefix + "experts.gate_up_proj", count, 2 * width, hidden)
            add(prefix + "experts.down_proj", count, hidden, width)
            return
        add(prefix + "gate.e_score_correction_bias", count, spread=0.1)
        for number in range(count):
            add_ffn(f"{prefix}experts.{number}.", width)
        add_ffn(prefix + "shared_experts.", width * config["n_shared_experts"])

    add("model.embed_tokens.weight", config["vocab_size"], hidden, spread=0.3)
    add("model.norm.weight", hidden, mean=1.0, spread=0.1)
    if not config.get("tie_word_embeddings"):
        add("lm_head.weight", config["vocab_size"], hidden)
    query, kv = (config[key] * config["head_dim"] for key in ("num_attention_heads", "num_key_value_heads"))
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        add(prefix + "input_layernorm.weight", hidden, mean=1.0, spread=0.1)
        add(prefix + "post_attention_layernorm.weight", hidden, mean=1.0, spread=0.1)
        for name, shape in (("q", (query, hidden)), ("k", (kv, hidden)), ("v", (kv, hidden)), ("o", (hidden, query))):
            add(f"{prefix}self_attn.{name}_proj.weight", *shape)
            if config["attention_bias"]:
                add(f"{prefix}self_attn.{name}_proj.bias", shape[0], spread=0.3)
        if config["model_type"] == "qwen3_moe":
            for name in ("q_norm", "k_norm"):
                add(f"{prefix}self_attn.{name}.weight", config["head_dim"], mean=1.0, spread=0.1)
        sparse = {"llama": False, "qwen3_moe": (layer + 1) % config.get("decoder_sparse_step", 1) == 0,
                  "glm4_moe": layer >= config.get("first_k_dense_replace", 0)}[config["model_type"]]
        if sparse:
            add_experts(prefix + "mlp.", config.get("num_experts") or config["n_routed_experts"], config["moe_intermediate_size"])
        else:
            add_ffn(prefix + "mlp.", config["intermediate_size"])
    return tensors


def record(name, config, seed):
    folder = GOLDEN / name
    folder.mkdir(exist_ok=True)
    weights = drawn_weights(config, seed)
    write_checkpoint(folder, weights)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    rng, examples = np.random.default_rng(seed + 1), []
    for length in (5, 17, 70, 131):
        ids = [int(i) for i in rng.integers(3, config["vocab_size"], length)]
        logits, greedy, margin = forward(config, weights, ids), [], math.inf
        for _ in range(16):
            last = forward(config, weights, ids + greedy)[-1]
            first, second = np.sort(last)[:-3:-1]
            greedy, margin = greedy + [int(last.argmax())], min(margin, first - second)
        examples.append({"input_ids": ids, "argmax_ids": [int(i) for i in logits.argmax(-1)],
                         "argmax_logits": [round(float(v), 4) for v in logits.max(-1)],
                         "last_logits": [round(float(v), 4) for v in logits[-1]], "greedy_ids": greedy,
                         "smallest_margin": round(float(margin), 4)})
    (folder / "golden.json").write_text(json.dumps(examples) + "\n")
    print(name, "smallest margins", [example["smallest_margin"] for example in examples])


def check(name):
    folder = GOLDEN / name
    config, weights, worst = json.loads((folder / "config.json").read_text()), read_checkpoint(folder), 0.0
    for example in json.loads((folder / "golden.json").read_text()):
        logits = forward(config, weights, example["input_ids"])
        worst = max(worst, np.abs(logits[-1] - example["last_logits"]).max(), np.abs(logits.max(-1) - example["argmax_logits"]).max())
    print(f"{name}: largest difference {worst:.1e}")
    return worst < 2e-4


def main():
    if sys.argv[1:] == ["check"]:
        return 0 if all([check(name) for name in CHECKED + list(VARIANTS)]) else 1
    if sys.argv[1:] == ["record"]:
        for seed, (name, config) in enumerate(VARIANTS.items()):
            record(name, config, 400 + seed)
        return 0
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main())
