"""Safetensors files and the number formats of weights, with nothing but the standard library: what the program's readers and
kernels are compared with. Formats are decoded from their definitions, one table a format."""

import array
import json
import struct


def read(path):
    """{name: (dtype, shape, bytes)}"""
    with open(path, "rb") as file:
        data = file.read()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    view = memoryview(data)[8 + length:]
    return {name: (e["dtype"], e["shape"], view[e["data_offsets"][0]:e["data_offsets"][1]]) for name, e in header.items()}


def write(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            file.write(data)


def e4m3(code):
    sign, exponent, mantissa = code >> 7, code >> 3 & 15, code & 7
    if exponent == 15 and mantissa == 7:
        return float("nan")
    magnitude = mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0**(exponent - 7)
    return -magnitude if sign else magnitude


E4M3 = [e4m3(code) for code in range(256)]
E2M1 = [sign * magnitude for sign in (1, -1) for magnitude in (0, 0.5, 1, 1.5, 2, 3, 4, 6)]
E2M1_PAIRS = [(E2M1[byte & 15], E2M1[byte >> 4]) for byte in range(256)]
INT4_PAIRS = [((byte & 15) - 8, (byte >> 4) - 8) for byte in range(256)]
INT8 = [code - 256 if code > 127 else code for code in range(256)]


def numbers(dtype, data):
    """The numbers of a plain tensor, or of factors, as floats."""
    data = bytes(data)
    if dtype == "F32":
        return array.array("f", data)
    if dtype == "BF16":
        return array.array("f", array.array("I", [half << 16 for half in array.array("H", data)]).tobytes())
    if dtype == "F16":
        return array.array("f", struct.unpack(f"<{len(data) // 2}e", data))
    if dtype == "F8_E4M3":
        return [E4M3[byte] for byte in data]
    raise ValueError(dtype)


def to_bf16(values):
    """Rounded towards zero: any rounding will do for a factor."""
    return array.array("H", [word >> 16 for word in array.array("I", array.array("f", values).tobytes())]).tobytes()


def decode(codes, rows, cols, per_byte, table, block_rows, block_cols, factors):
    """f32 numbers of [rows, cols] whose codes have a factor for each block; table: what a byte stands for."""
    out, data, row_bytes = array.array("f"), bytes(codes), cols // per_byte
    num_blocks = -(-cols // block_cols)
    for row in range(rows):
        for block in range(num_blocks):
            begin, end = block * block_cols // per_byte, min((block + 1) * block_cols, cols) // per_byte
            part = data[row * row_bytes + begin:row * row_bytes + end]
            factor = factors[row // block_rows * num_blocks + block]
            if per_byte == 2:
                out.extend([number * factor for byte in part for number in table[byte]])
            else:
                out.extend([table[byte] * factor for byte in part])
    return out


def dequantized(tensors, fp8_block=(128, 128)):
    """All tensors as plain f32 numbers under the names that plain checkpoints have."""
    out = {}
    for name, (dtype, shape, data) in tensors.items():
        module = name.rsplit(".", 1)[0]
        part = name[len(module):]
        factors = tensors.get(module + ".weight_scale") or tensors.get(module + ".weight_scale_inv")
        if part.startswith(".weight_") and part != ".weight_packed":
            continue
        if dtype in ("F32", "BF16", "F16"):
            out[name] = ("F32", shape, numbers(dtype, data).tobytes())
            continue
        rows, cols = shape[0], shape[1]
        scale_dtype, scale_shape, scales = factors
        if dtype == "F8_E4M3":
            count = len(numbers(scale_dtype, scales))
            block = (rows, cols) if count == 1 else (1, cols) if scale_shape in ([rows, 1], [rows]) else fp8_block
            decoded = decode(data, rows, cols, 1, E4M3, *block, numbers(scale_dtype, scales))
        elif dtype == "I8":
            decoded = decode(data, rows, cols, 1, INT8, 1, cols, numbers(scale_dtype, scales))
        elif dtype == "I32":
            cols = tuple(array.array("q", bytes(tensors[module + ".weight_shape"][2])))[1]
            per_byte, table = (2, INT4_PAIRS) if shape[1] * 8 == cols else (1, [byte - 128 for byte in range(256)])
            decoded = decode(data, rows, cols, per_byte, table, 1, cols // scale_shape[1], numbers(scale_dtype, scales))
        elif scale_dtype == "F8_E4M3":
            whole = array.array("f", bytes(tensors[module + ".weight_global_scale"][2]))[0]
            cols = 2 * cols
            decoded = decode(data, rows, cols, 2, E2M1_PAIRS, 1, 16, [s / whole for s in numbers(scale_dtype, scales)])
        else:
            cols = 2 * cols
            decoded = decode(data, rows, cols, 2, E2M1_PAIRS, 1, 32, [2.0**(byte - 127) for byte in bytes(scales)])
        out[module + ".weight"] = ("F32", [rows, cols], decoded.tobytes())
    return out
