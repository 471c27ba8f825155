#!/usr/bin/env python3
"""Writes tests/golden/qwen3-next: a tiny random checkpoint and its logits by Hugging Face transformers in float32.

usage: record_qwen3_next_golden.py     needs `pip install torch transformers safetensors`

The checkpoint lies as the published ones do: one tensor an expert, projections grouped by key head. Its sizes are those
that others do not have: three value heads to a key head, heads whose widths are no powers of two, a dense layer.
Prompts are shorter and longer than the 64 rows that transformers takes at once.
"""

import json
import pathlib

import safetensors.torch
import torch
from transformers import Qwen3NextConfig, Qwen3NextForCausalLM

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests/golden/qwen3-next"
CONFIG = {
    "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "hidden_size": 48, "intermediate_size": 40,
    "vocab_size": 160, "num_hidden_layers": 4, "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "hidden_act": "silu",
    "eos_token_id": 2, "tie_word_embeddings": False, "layer_types": ["linear_attention", "full_attention"] * 2,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16, "partial_rotary_factor": 0.25, "rope_theta": 10000.0,
    "linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 12, "linear_value_head_dim": 20,
    "linear_conv_kernel_dim": 4, "num_experts": 10, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 24, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [1],
}
PROMPT_LENGTHS = [1, 7, 63, 64, 150]
NUM_GREEDY = 12


def draw_weights(model):
    """Values that bf16 holds exactly, large enough that every part shows in the logits."""
    generator = torch.Generator().manual_seed(20)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            drawn = torch.randn(weight.shape, generator=generator)
            if name.endswith("A_log"):
                drawn = drawn * 0.5
            elif name.endswith("linear_attn.norm.weight"):
                drawn = 1 + drawn * 0.3
            elif weight.dim() == 1:
                drawn = drawn * 0.3
            elif name.endswith("conv1d.weight"):
                drawn = drawn * 0.4
            else:
                drawn = drawn * weight.shape[-1] ** -0.5
            weight.copy_(drawn.to(torch.bfloat16).to(weight.dtype))


def as_published(model):
    tensors = {}
    for name, weight in model.state_dict().items():
        weight = weight.to(torch.bfloat16)
        if name.endswith("experts.gate_up_proj"):
            for expert, both in enumerate(weight):
                gate, up = both.chunk(2)
                prefix = name.removesuffix("gate_up_proj") + f"{expert}."
                tensors[prefix + "gate_proj.weight"], tensors[prefix + "up_proj.weight"] = gate.contiguous(), up.contiguous()
        elif name.endswith("experts.down_proj"):
            for expert, down in enumerate(weight):
                tensors[name.removesuffix("down_proj") + f"{expert}.down_proj.weight"] = down.contiguous()
        else:
            tensors[name] = weight.contiguous()
    return tensors


def example(model, prompt):
    logits = model(torch.tensor([prompt]), use_cache=False).logits[0].float()
    best = logits.max(dim=-1)
    ids = list(prompt)
    for _ in range(NUM_GREEDY):
        ids.append(int(model(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
    rounded = lambda values: [round(float(value), 4) for value in values]
    return {"input_ids": prompt, "argmax_ids": best.indices.tolist(), "argmax_logits": rounded(best.values),
            "last_logits": rounded(logits[-1]), "greedy_ids": ids[len(prompt):]}


def main():
    torch.manual_seed(20)
    model = Qwen3NextForCausalLM(Qwen3NextConfig(**CONFIG)).float().eval()
    draw_weights(model)
    generator = torch.Generator().manual_seed(21)
    with torch.no_grad():
        examples = [example(model, torch.randint(3, CONFIG["vocab_size"], (length,), generator=generator).tolist())
                    for length in PROMPT_LENGTHS]
    FOLDER.mkdir(exist_ok=True)
    safetensors.torch.save_file(as_published(model), FOLDER / "model.safetensors")
    (FOLDER / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    (FOLDER / "golden.json").write_text(json.dumps(examples, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
