#!/usr/bin/env python3
"""Tiny random checkpoints with reference logits, made with Hugging Face transformers.

usage: record_transformers_golden.py [NAME...]     writes the named (or all) checkpoints of CONFIGS to tests/golden

The weights are exact in bf16. The logits come from a float32 run and are compared with a float64 run before they are
written. Needs `pip install torch transformers numpy`; written with transformers 5.24 and torch 2.15.
"""

import json
import math
import pathlib
import sys

import torch
import transformers

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests/golden"
LENGTHS = (5, 17, 70, 131)
NUM_GREEDY = 16
TOLERANCE = 6e-5

SIZES = {"hidden_size": 48, "intermediate_size": 80, "vocab_size": 160, "max_position_embeddings": 512,
         "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
MLA = SIZES | {"num_attention_heads": 4, "num_key_value_heads": 4, "kv_lora_rank": 24, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8,
               "v_head_dim": 12, "num_hidden_layers": 3, "first_k_dense_replace": 1, "moe_intermediate_size": 24,
               "n_routed_experts": 8, "num_experts_per_tok": 3}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "beta_fast": 32, "beta_slow": 1, "mscale": 0.707,
        "mscale_all_dim": 0.707, "original_max_position_embeddings": 64}
CONFIGS = {
    # A window on all layers, heads that four ranks do not divide.
    "mixtral": (transformers.MixtralConfig, SIZES | {
        "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 12, "num_local_experts": 8,
        "num_experts_per_tok": 2, "sliding_window": 24}),
    # Dense layers between sparse ones, windows in some layers, weights that are not normalised.
    "qwen2-moe": (transformers.Qwen2MoeConfig, SIZES | {
        "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "num_experts": 9, "num_experts_per_tok": 3,
        "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40, "decoder_sparse_step": 2, "mlp_only_layers": [],
        "norm_topk_prob": False, "use_sliding_window": True, "sliding_window": 32, "max_window_layers": 3}),
    # Compressed queries, experts chosen within groups, a scaling factor.
    "deepseek-v2": (transformers.DeepseekV2Config, MLA | {
        "q_lora_rank": 32, "topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2, "norm_topk_prob": False,
        "routed_scaling_factor": 4.0, "n_shared_experts": 1}),
    # As V2-Lite is: no compression, no groups, two shared experts, yarn with its factor in the softmax.
    "deepseek-v2-lite": (transformers.DeepseekV2Config, MLA | {
        "q_lora_rank": None, "topk_method": "greedy", "norm_topk_prob": False, "n_shared_experts": 2, "rope_parameters": YARN}),
    # The indexer keeps more tokens than the longest text has: attention is dense.
    "deepseek-v32": (transformers.DeepseekV32Config, MLA | {
        "q_lora_rank": 32, "n_group": 4, "topk_group": 2, "norm_topk_prob": True, "routed_scaling_factor": 2.5, "n_shared_experts": 1,
        "index_topk": 256, "index_head_dim": 16, "index_n_heads": 2, "head_dim": 8}),
}

SEEDS = {"qwen2-moe": 511}  # the others count from 500; near ties of greedy tokens are avoided


def drawn_model(config_class, config, seed):
    torch.manual_seed(seed)
    config = config_class(**config, attn_implementation="eager", experts_implementation="eager")
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for name, values in model.state_dict().items():
            if "e_score_correction_bias" in name:
                values.copy_(torch.randn_like(values) * 0.1)
                continue
            if name.endswith("norm.weight"):
                drawn = 1 + 0.1 * torch.randn_like(values)
            elif name.endswith("bias"):
                drawn = 0.3 * torch.randn_like(values)
            elif name == "model.embed_tokens.weight":
                drawn = 0.3 * torch.randn_like(values)
            else:
                drawn = torch.randn_like(values) / math.sqrt(values.shape[-1])
            values.copy_(drawn.bfloat16().float())
    return model


@torch.no_grad()
def logits_of(model, ids):
    return model(torch.tensor([ids]), use_cache=False).logits[0].double()


def example_of(model, precise, ids):
    logits = logits_of(model, ids)
    difference = float((logits - logits_of(precise, ids)).abs().max())
    assert difference < TOLERANCE, f"float32 and float64 differ by {difference}"
    greedy, margin = [], math.inf
    for _ in range(NUM_GREEDY):
        best = logits_of(model, ids + greedy)[-1].topk(2)
        greedy.append(int(best.indices[0]))
        margin = min(margin, float(best.values[0] - best.values[1]))
    return difference, margin, {
        "input_ids": ids, "argmax_ids": logits.argmax(-1).tolist(), "argmax_logits": [round(v, 4) for v in logits.amax(-1).tolist()],
        "last_logits": [round(v, 4) for v in logits[-1].tolist()], "greedy_ids": greedy}


def record(name, seed):
    config_class, config = CONFIGS[name]
    model = drawn_model(config_class, config, seed)
    precise = drawn_model(config_class, config, seed).double()
    folder = GOLDEN / name
    generator = torch.Generator().manual_seed(seed)
    drawn = [torch.randint(3, config["vocab_size"], (length,), generator=generator).tolist() for length in LENGTHS]
    found = [example_of(model, precise, ids) for ids in drawn]
    biases = {key: value.clone() for key, value in model.state_dict().items() if "e_score_correction_bias" in key}
    model.bfloat16()
    for key, value in biases.items():
        model.get_submodule(key.rsplit(".", 1)[0]).e_score_correction_bias.data = value
    model.save_pretrained(folder)
    (folder / "golden.json").write_text(json.dumps([example for _, _, example in found]) + "\n")
    print(f"{name}: float32 against float64 {max(d for d, _, _ in found):.1e}, smallest margins {[round(m, 4) for _, m, _ in found]}")


def main():
    names = sys.argv[1:] or list(CONFIGS)
    if not set(names) <= set(CONFIGS):
        print(__doc__)
        return 2
    for seed, name in enumerate(CONFIGS):
        if name in names:
            record(name, SEEDS.get(name, 500 + seed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
