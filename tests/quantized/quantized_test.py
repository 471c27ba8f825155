#!/usr/bin/env python3
"""Quantized checkpoints, run by the program as a person would: every form that `lockstep quantize` writes and every other
published layout must give the logits of float32 arithmetic on the numbers that the file stands for, on any number of ranks, also
where a split cuts the blocks that share a factor. What the file stands for is worked out by checkpoint_files.py.

usage: quantized_test.py LOCKSTEP_BINARY REPOSITORY
LOCKSTEP_QUANTIZED_BRIEF leaves out the trained models, for slow sanitized builds. LOCKSTEP_EVAL_LIMIT=400 asks all problems, not 40.
"""

import array
import functools
import json
import math
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time

import checkpoint_files as files

TOLERANCE = 2e-3
FORMATS = ["fp8", "nvfp4", "mxfp4", "int8", "int4"]
# Expert widths of 128 over 8 ranks are cut at 16, inside blocks of FP8, MXFP4 and int4; the small model's 32 over 3 at 10 and
# 21, inside blocks of every format and between the codes of a byte.
SPLITS = ["--tp-size 1", "--tp-size 2 --ep-size 2", "--tp-size 4 --dp-size 2 --enable-dp-attention --ep-size 4 "
          "--moe-a2a-backend in_process --moe-dense-tp-size 1", "--tp-size 8"]
EVAL_SPLITS = [SPLITS[0], SPLITS[-1]]
EVAL_LIMIT = int(os.environ.get("LOCKSTEP_EVAL_LIMIT", "40"))
TUTORS = [("models/tutor-deepseek-v3", "tests/golden/tutor-deepseek-v3/golden.json"),
          ("models/tutor-qwen3.5-moe", "tests/golden/tutor-qwen3.5-moe/golden.json")]


class Report:
    def __init__(self):
        self.passed = self.failed = 0

    def check(self, name, problems):
        problems = list(problems)
        self.passed, self.failed = self.passed + (not problems), self.failed + bool(problems)
        for problem in problems:
            print(f"FAIL {name}: {problem}", flush=True)


def run(binary, *arguments):
    return subprocess.run([binary, "--log-level", "warning", *arguments], capture_output=True, text=True, timeout=1200)


def score(binary, model, flags, ids, greedy=8):
    done = run(binary, "score", "--model", model, "--ids", ",".join(map(str, ids)), "--greedy", str(greedy), *flags.split())
    if done.returncode != 0:
        raise RuntimeError(f"{model} {flags}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def distance(a, b):
    pairs = [*zip(a["argmax_logits"], b["argmax_logits"]), *zip(a["last_logits"], b["last_logits"])]
    if len(a["argmax_logits"]) != len(b["argmax_logits"]) or len(a["last_logits"]) != len(b["last_logits"]):
        return math.inf
    return max(abs(x - y) for x, y in pairs)


def copy_with(source, target, tensors, quantization):
    """The folder again with other tensors and another quantization_config; None: none."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    with open(f"{source}/config.json") as file:
        config = json.load(file)
    config.pop("quantization_config", None)
    if quantization is not None:
        config["quantization_config"] = quantization
    with open(f"{target}/config.json", "w") as file:
        json.dump(config, file)
    files.write(f"{target}/model.safetensors", tensors)
    return target


def tensors_of(folder):
    return files.read(f"{folder}/model.safetensors")


def check_against_numbers(report, binary, name, folder, ids, splits, work):
    """Returns the logits of the plain numbers, on one rank."""
    plain = copy_with(folder, f"{work}/plain", files.dequantized(tensors_of(folder)), None)
    want = score(binary, plain, "--tp-size 1", ids)
    shutil.rmtree(plain)
    sorted_logits = sorted(want["last_logits"], reverse=True)
    clear = sorted_logits[0] - sorted_logits[1] > 2 * TOLERANCE
    for flags in splits:
        got = score(binary, folder, flags, ids)
        off = distance(got, want)
        problems = [f"a logit is off by {off}"] if not off <= TOLERANCE else []
        if clear and got["greedy_ids"][:1] != want["greedy_ids"][:1]:
            problems.append(f"continues with {got['greedy_ids']}, expected {want['greedy_ids']}")
        print(f"{'FAIL' if problems else 'ok  '} {name}: logits within {off:.1e} of the numbers', {flags}", flush=True)
        report.check(f"{name} {flags}", problems)
    return want


def quantize(report, binary, source, form, target, *more):
    done = run(binary, "quantize", "--model", source, "--format", form, "--output", target, "--json", *more)
    report.check(f"quantize to {form}", [done.stderr] if done.returncode != 0 else [])
    return json.loads(done.stdout)


def accuracy(binary, repository, model, flags):
    done = run(binary, "eval", "--json", "--model", model, "--problems", f"{repository}/tests/eval/problems-seed11.jsonl", "--limit",
               str(EVAL_LIMIT), *flags.split())
    if done.returncode not in (0, 1) or not done.stdout:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)["right"]


def check_error_report(form, source, target, result):
    """The errors that quantize printed are those of the numbers in its file."""
    before = {name: files.numbers(dtype, data) for name, (dtype, _, data) in tensors_of(source).items() if "experts.3." in name}
    after = files.dequantized({n: t for n, t in tensors_of(target).items() if "experts.3." in n})
    found = {weight["module"]: weight for weight in result["weights"]}
    for name, numbers in before.items():
        if name.removesuffix(".weight") not in found:
            continue  # of the draft layer, which is copied
        decoded = array.array("f", after[name][2])
        squares = sum(x * x for x in numbers)
        error = math.sqrt(sum((x - y)**2 for x, y in zip(numbers, decoded)) / squares)
        printed = found[name.removesuffix(".weight")]["relative_error"]
        if abs(error - printed) > 1e-5 + 1e-3 * error:
            yield f"{form} {name}: relative error {error}, printed {printed}"


def check_tutor(report, binary, repository, model, golden, work):
    source = f"{repository}/{model}"
    with open(f"{repository}/{golden}") as file:
        ids = json.load(file)[0]["input_ids"]
    original = score(binary, source, "--tp-size 1", ids)
    for form in FORMATS:
        start = time.monotonic()
        target = f"{work}/{form}"
        result = quantize(report, binary, source, form, target)
        report.check(f"{model} in {form}", check_error_report(form, source, target, result) if form in ("fp8", "int8") else [])
        want = check_against_numbers(report, binary, f"{model} in {form}", target, ids, SPLITS, work)
        # While loading, int4 takes a group of its own for each weight; the splits must agree all the same.
        whole = want if form != "int4" else score(binary, source, "--tp-size 1 --quantization int4", ids)
        for flags in EVAL_SPLITS[1:]:
            off = distance(score(binary, source, f"{flags} --quantization {form}", ids), whole)
            report.check(f"{form} while loading, {flags}", [f"a logit is off by {off}"] if not off <= TOLERANCE else [])
        if not distance(want, original) > TOLERANCE:
            report.check(form, ["quantizing changed nothing"])
        right = {flags: accuracy(binary, repository, target, flags) for flags in EVAL_SPLITS}
        average = sum(weight["relative_error"] for weight in result["weights"]) / len(result["weights"])
        print(f"     {model} in {form}: weights off by {100 * average:.2f} %, largest change of a logit "
              f"{distance(want, original):.2f}, {right[EVAL_SPLITS[0]]} of {EVAL_LIMIT} problems right on 1 and "
              f"{right[EVAL_SPLITS[1]]} on 8 ranks, {time.monotonic() - start:.1f} s", flush=True)
        report.check(f"{form} accuracy", [f"differs between splits: {right}"] if len(set(right.values())) != 1 else [])
        if form == "int4":
            check_same(report, binary, "GPTQ", copy_with(target, f"{work}/other", *gptq_of(tensors_of(target))), want, ids)
            shutil.rmtree(f"{work}/other")
        if form == "nvfp4":
            check_same(report, binary, "ModelOpt", copy_with(target, f"{work}/other", *modelopt_of(tensors_of(target))), want, ids)
            shutil.rmtree(f"{work}/other")
        shutil.rmtree(target)


def check_same(report, binary, name, folder, want, ids):
    for flags in ("--tp-size 1", "--tp-size 8"):
        off = distance(score(binary, folder, flags, ids), want)
        print(f"{'ok  ' if off <= TOLERANCE else 'FAIL'} {name}: logits within {off:.1e} of the numbers', {flags}", flush=True)
        report.check(f"{name} {flags}", [f"a logit is off by {off}"] if not off <= TOLERANCE else [])


# ---- other layouts of the same codes -------------------------------------------------------------------------------------------


def transposed(words, rows, cols):
    return array.array(words.typecode, [word for col in range(cols) for word in words[col::cols]])


def as_f16(dtype, data):
    return array.array("H", struct.pack(f"<{len(data) // 2}e", *files.numbers(dtype, data)))


def groups_in(tensors, module):
    return tensors[module + ".weight_scale"][1][1]


def gptq_of(tensors):
    """Eight inputs to a word, as compressed-tensors has them, but words of an input row lie together; zero point 8 less 1."""
    out, group_size = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        module, part = name.rsplit(".", 1)
        if part == "weight_packed":
            rows, words = shape
            groups = groups_in(tensors, module)
            group_size = words * 8 // groups
            scale_dtype, _, scales = tensors[module + ".weight_scale"]
            out[module + ".qweight"] = ("I32", [words, rows], transposed(array.array("I", bytes(data)), rows, words).tobytes())
            out[module + ".qzeros"] = ("I32", [groups, rows // 8], array.array("I", [0x77777777] * (groups * rows // 8)).tobytes())
            out[module + ".scales"] = ("F16", [groups, rows], transposed(as_f16(scale_dtype, scales), rows, groups).tobytes())
            out[module + ".g_idx"] = ("I32", [words * 8], array.array("i", [i // group_size for i in range(words * 8)]).tobytes())
        elif part not in ("weight_scale", "weight_shape"):
            out[name] = (dtype, shape, data)
    return out, {"quant_method": "gptq", "bits": 4, "group_size": group_size, "desc_act": False, "sym": True}


def awq_of(tensors):
    """Eight outputs to a word, 0 2 4 6 1 3 5 7 from the lowest bits."""
    order, out, group_size = (0, 2, 4, 6, 1, 3, 5, 7), {}, 0
    for name, (dtype, shape, data) in tensors.items():
        module, part = name.rsplit(".", 1)
        if part == "weight_packed":
            rows, words = shape
            groups = groups_in(tensors, module)
            group_size = words * 8 // groups
            packed = array.array("I", bytes(data))
            scale_dtype, _, scales = tensors[module + ".weight_scale"]
            codes = [[packed[row * words + col // 8] >> 4 * (col % 8) & 15 for row in range(rows)] for col in range(words * 8)]
            new = [sum(line[8 * word + order[i]] << 4 * i for i in range(8)) for line in codes for word in range(rows // 8)]
            out[module + ".qweight"] = ("I32", [words * 8, rows // 8], array.array("I", new).tobytes())
            out[module + ".qzeros"] = ("I32", [groups, rows // 8], array.array("I", [0x88888888] * (groups * rows // 8)).tobytes())
            out[module + ".scales"] = ("F16", [groups, rows], transposed(as_f16(scale_dtype, scales), rows, groups).tobytes())
        elif part not in ("weight_scale", "weight_shape"):
            out[name] = (dtype, shape, data)
    return out, {"quant_method": "awq", "bits": 4, "group_size": group_size, "version": "gemm", "zero_point": True}


def modelopt_of(tensors):
    out = {}
    for name, (dtype, shape, data) in tensors.items():
        module, part = name.rsplit(".", 1)
        if part == "weight_packed":
            out[module + ".weight"] = (dtype, shape, data)
            out[module + ".input_scale"] = ("F32", [], struct.pack("<f", 0.01))
        elif part == "weight_global_scale":
            out[module + ".weight_scale_2"] = ("F32", [], struct.pack("<f", 1 / struct.unpack("<f", data)[0]))
        else:
            out[name] = (dtype, shape, data)
    return out, {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["lm_head"]}


def compressed(**weights):
    return {"quant_method": "compressed-tensors", "ignore": ["lm_head"],
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}


def fp8_with(tensors, scale_of):
    """The codes with other factors; scale_of(rows, numbers of the blocks' factors): dtype, shape, bytes."""
    out = {}
    for name, (dtype, shape, data) in tensors.items():
        if not name.endswith(".weight_scale_inv"):
            out[name] = (dtype, shape, data)
            continue
        rows = tensors[name.removesuffix("_scale_inv")][1][0]
        suffix, scales = scale_of(rows, shape, files.numbers(dtype, data))
        out[name.removesuffix("weight_scale_inv") + suffix] = scales
    return out


def check_layouts(report, binary, repository, work):
    source = f"{repository}/tests/golden/qwen3-moe"
    with open(f"{source}/golden.json") as file:
        ids = json.load(file)[0]["input_ids"]
    splits = ["--tp-size 1", "--tp-size 3", "--tp-size 8 --ep-size 2", "--tp-size 4 --dp-size 4 --enable-dp-attention --ep-size 4 "
              "--moe-a2a-backend in_process --moe-dense-tp-size 1"]
    for form in FORMATS:
        quantize(report, binary, source, form, f"{work}/{form}")
    fp8, int8, int4 = (tensors_of(f"{work}/{form}") for form in ("fp8", "int8", "int4"))
    block_config = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
    half = {name: ("F16", shape, as_f16(dtype, data).tobytes()) for name, (dtype, shape, data) in tensors_of(source).items()}
    bytes8 = {}
    for name, (dtype, shape, data) in int8.items():
        if dtype == "I8":
            module = name.removesuffix(".weight")
            bytes8[module + ".weight_packed"] = ("I32", [shape[0], shape[1] // 4], bytes([(b + 128) & 255 for b in bytes(data)]))
            bytes8[module + ".weight_shape"] = ("I64", [2], array.array("q", shape).tobytes())
        else:
            bytes8[name] = (dtype, shape, data)
    forms = {
        "half precision": (half, None),
        "FP8 with bf16 factors": (fp8_with(fp8, lambda rows, shape, s: ("weight_scale_inv", ("BF16", shape, files.to_bf16(s)))),
                                  block_config),
        "FP8 a tensor": (fp8_with(fp8, lambda rows, shape, s: ("weight_scale", ("F32", [1], array.array("f", s[:1]).tobytes()))),
                         compressed(num_bits=8, type="float", strategy="tensor")),
        "FP8 a channel": (fp8_with(fp8, lambda rows, shape, s: ("weight_scale", (
            "F32", [rows, 1], array.array("f", [s[0] * (1 + row % 3) / 2 for row in range(rows)]).tobytes()))),
                          compressed(num_bits=8, type="float", strategy="channel")),
        "8 bits in words": (bytes8, compressed(num_bits=8, type="int", strategy="channel")),
    }
    for name, (tensors, config) in forms.items():
        folder = copy_with(source, f"{work}/form", tensors, config)
        check_against_numbers(report, binary, name, folder, ids, splits, work)
        shutil.rmtree(folder)
    for form in FORMATS:
        check_against_numbers(report, binary, form, f"{work}/{form}", ids, splits, work)
    plain = copy_with(source, f"{work}/plain", files.dequantized(int4), None)
    folder = copy_with(source, f"{work}/form", *awq_of(int4))
    check_same(report, binary, "AWQ", folder, score(binary, plain, "--tp-size 1", ids), ids)


def mxfp4_of_columns(columns):
    """Codes and factors of rows of numbers: the factor brings a block's largest number to 4..8, as OCP's MX has it."""
    codes, factors = bytearray(), bytearray()
    for column in columns:
        for begin in range(0, len(column), 32):
            block = column[begin:begin + 32]
            largest = max(abs(x) for x in block)
            exponent = math.floor(math.log2(largest)) - 2 if largest > 0 else -127
            nearest = [min(range(16), key=lambda code: abs(files.E2M1[code] - x / 2.0**exponent)) for x in block]
            codes += bytes(low | high << 4 for low, high in zip(nearest[::2], nearest[1::2]))
            factors.append(exponent + 127)
    return bytes(codes), bytes(factors)


def as_published(tensors):
    """gpt-oss with its experts as they are published: outputs first, with blocks along the inputs."""
    packed = {}
    for name, (dtype, shape, data) in tensors.items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            packed[name] = (dtype, shape, data)
            continue
        experts, inputs, outputs = shape
        whole, codes, factors = files.numbers(dtype, data), bytearray(), bytearray()
        for expert in range(experts):
            matrix = whole[expert * inputs * outputs:(expert + 1) * inputs * outputs]
            of_expert, factors_of = mxfp4_of_columns([matrix[column::outputs] for column in range(outputs)])
            codes, factors = codes + of_expert, factors + factors_of
        packed[name + "_blocks"] = ("U8", [experts, outputs, inputs // 32, 16], bytes(codes))
        packed[name + "_scales"] = ("U8", [experts, outputs, inputs // 32], bytes(factors))
    return packed


def check_refused(report, name, done, *words):
    missing = [word for word in words if word not in done.stderr]
    report.check(name, [f"exit code {done.returncode}, {done.stderr!r} lacks {missing}"] if done.returncode != 2 or missing else [])


def numbers_of_published(tensors):
    """What experts in gpt-oss's published layout stand for, inputs first, beside the other tensors as float32."""
    plain = {}
    for name, (dtype, shape, data) in tensors.items():
        if name.endswith("_blocks"):
            experts, outputs, blocks, _ = shape
            inputs, numbers, factors = 32 * blocks, array.array("f"), tensors[name.replace("_blocks", "_scales")][2]
            for expert in range(experts):
                codes = data[expert * outputs * inputs // 2:(expert + 1) * outputs * inputs // 2]
                scales = [2.0**(byte - 127) for byte in factors[expert * outputs * blocks:(expert + 1) * outputs * blocks]]
                numbers += transposed(files.decode(codes, outputs, inputs, 2, files.E2M1_PAIRS, 1, 32, scales), outputs, inputs)
            plain[name.removesuffix("_blocks")] = ("F32", [experts, inputs, outputs], numbers.tobytes())
        elif not name.endswith("_scales"):
            plain[name] = ("F32", shape, files.numbers(dtype, data).tobytes())
    return plain


def farther(written, nearest, source):
    """Where a written number is farther from the source's than the nearest there is; which of two equally near ones is free."""
    found = []
    for name, (dtype, _, data) in source.items():
        original, got, best = files.numbers(dtype, data), array.array("f", written[name][2]), array.array("f", nearest[name][2])
        if any(abs(x - w) != abs(x - n) for x, w, n in zip(original, got, best)):
            found.append(f"{name} could be nearer")
    return found


def check_gpt_oss(report, binary, repository, work):
    source = f"{repository}/tests/golden/gpt-oss"
    with open(f"{source}/golden.json") as file:
        ids = json.load(file)[0]["input_ids"]
    packed = as_published(tensors_of(source))
    plain = numbers_of_published(packed)
    whole = copy_with(source, f"{work}/plain", plain, None)
    folder = copy_with(source, f"{work}/packed", packed, {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]})
    want = score(binary, whole, "--tp-size 1", ids)
    for flags in ("--tp-size 1", "--tp-size 2 --ep-size 2", "--tp-size 3", "--tp-size 8"):
        off = distance(score(binary, folder, flags, ids), want)
        print(f"{'ok  ' if off <= TOLERANCE else 'FAIL'} gpt-oss as published: logits within {off:.1e} of the numbers', {flags}")
        report.check(f"gpt-oss as published {flags}", [f"a logit is off by {off}"] if not off <= TOLERANCE else [])
    # What quantize writes is that layout.
    result = quantize(report, binary, source, "mxfp4", f"{work}/written")
    written = tensors_of(f"{work}/written")
    report.check("gpt-oss: quantize writes the published tensors", [] if {name: of[:2] for name, of in written.items()} == {
        name: of[:2] for name, of in packed.items()} else [f"{sorted(written)} are not {sorted(packed)}"])
    stands_for = numbers_of_published(written)
    report.check("gpt-oss: quantize writes the nearest numbers", farther(stands_for, plain, tensors_of(source)))
    experts = sum(shape[0] for name, (_, shape, _) in packed.items() if name.endswith("_blocks"))
    report.check("gpt-oss: every expert's error is told", [] if len(result["weights"]) == experts else [str(len(result["weights"]))])
    want = score(binary, copy_with(source, f"{work}/stands_for", stands_for, None), "--tp-size 1", ids)
    check_same(report, binary, "gpt-oss quantized", f"{work}/written", want, ids)
    check_refused(report, "gpt-oss in a format that it has not", run(binary, "quantize", "--model", source, "--format", "fp8", "--output", f"{work}/fp8"), "--format mxfp4")
    check_refused(report, "gpt-oss quantized twice", run(binary, "quantize", "--model", folder, "--format", "mxfp4", "--output", f"{work}/twice"), "already")


# ---- what is refused -----------------------------------------------------------------------------------------------------------


def check_refusals(report, binary, repository, work):
    source = f"{repository}/tests/golden/qwen3-moe"
    tensors = tensors_of(source)

    refused = functools.partial(check_refused, report)

    def folder_with(change):
        shutil.rmtree(f"{work}/bad", ignore_errors=True)
        shutil.copytree(source, f"{work}/bad")
        with open(f"{work}/bad/config.json") as file:
            config = json.load(file)
        change(config)
        with open(f"{work}/bad/config.json", "w") as file:
            json.dump(config, file)
        return f"{work}/bad"

    def fewer_layers(config):
        config["num_hidden_layers"] = 1

    refused("fewer layers than the file", run(binary, "score", "--model", folder_with(fewer_layers), "--ids", "1"),
            "tensors do not fit the config", "model.layers.1.", "nothing reads it")
    broken = dict(tensors)
    broken["model.norm.weight"] = ("I64", [64], bytes(512))
    broken["model.layers.0.self_attn.q_proj.weight"] = ("BF16", [1, 2], bytes(4))
    del broken["model.layers.0.self_attn.o_proj.weight"]
    files.write(f"{folder_with(lambda config: None)}/model.safetensors", broken)
    refused("tensors that do not fit", run(binary, "score", "--model", f"{work}/bad", "--ids", "1"), "model.norm.weight is i64",
            "q_proj.weight is [1, 2], expected [128, 64]", "o_proj.weight is missing", "3 tensors")
    whole = os.path.getsize(f"{source}/model.safetensors")
    os.truncate(f"{folder_with(lambda config: None)}/model.safetensors", 0)
    shutil.copy(f"{source}/model.safetensors", f"{work}/bad/model.safetensors")
    os.truncate(f"{work}/bad/model.safetensors", whole - 1000)
    refused("half a copy", run(binary, "score", "--model", f"{work}/bad", "--ids", "1"), "did not finish", str(whole - 1000), str(whole))
    quantize(report, binary, source, "int8", f"{work}/int8")
    refused("quantized twice", run(binary, "score", "--model", f"{work}/int8", "--ids", "1", "--quantization", "fp8"),
            "is quantized already", "--quantization")
    refused("an output that is there", run(binary, "quantize", "--model", source, "--format", "fp8", "--output", f"{work}/bad"),
            "--output", "is there already")
    refused("a format that is none", run(binary, "quantize", "--model", source, "--format", "int3", "--output", f"{work}/new"), "int3")
    refused("a group that is no multiple", run(binary, "quantize", "--model", source, "--format", "int4", "--group-size", "12",
                                               "--output", f"{work}/new"), "12")
    leftover = [name for name in os.listdir(work) if name.startswith("new")]
    report.check("nothing is left of a refused output", [str(leftover)] if leftover else [])


def main():
    binary, repository = os.path.abspath(sys.argv[1]), sys.argv[2]
    report = Report()
    with tempfile.TemporaryDirectory() as work:
        os.mkdir(f"{work}/layouts")
        check_layouts(report, binary, repository, f"{work}/layouts")
        os.mkdir(f"{work}/gpt-oss")
        check_gpt_oss(report, binary, repository, f"{work}/gpt-oss")
        check_refusals(report, binary, repository, work)
        for model, golden in [] if os.environ.get("LOCKSTEP_QUANTIZED_BRIEF") else TUTORS:
            os.mkdir(f"{work}/tutor")
            check_tutor(report, binary, repository, model, golden, f"{work}/tutor")
            shutil.rmtree(f"{work}/tutor")
    print(f"{report.passed} passed, {report.failed} failed")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
