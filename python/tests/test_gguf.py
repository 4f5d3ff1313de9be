"""The reader of GGUF files that the vLLM servers get their weights from."""

import struct

import numpy
import pytest
from gguf_file import Gguf, GgufError

U32, STRING, ARRAY = 4, 8, 9


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def written(tensors):
    """A file of version 3 with these tensors: name, shape as numpy has it, type, bytes."""
    pairs = [
        text("general.architecture") + struct.pack("<I", STRING) + text("llama"),
        text("tokens") + struct.pack("<IIQ", ARRAY, STRING, 2) + text("a") + text("bc"),
        text("count") + struct.pack("<II", U32, 7),
    ]
    head, data = b"", b""
    for name, shape, kind, payload in tensors:
        head += text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", size) for size in shape[::-1])
        head += struct.pack("<IQ", kind, len(data))
        data += payload + bytes(-len(payload) % 32)
    start = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join(pairs) + head
    return start + bytes(-len(start) % 32) + data


def half(value):
    return struct.pack("<e", value)


def test_tensors_come_out_as_the_format_says(tmp_path):
    plain = numpy.arange(6, dtype="<f4")
    # Low halves are the first 16 values, high halves the last 16.
    nibbles = half(0.5) + half(-2.0) + bytes(low | (15 - low) << 4 for low in range(16))
    eights = half(0.25) + bytes(value & 0xFF for value in range(-16, 16))
    tensors = [("f", (2, 3), 0, plain.tobytes()), ("q4", (1, 32), 3, nibbles), ("q8", (32,), 8, eights)]
    path = tmp_path / "model.gguf"
    path.write_bytes(written(tensors))
    file = Gguf(path)
    assert file.metadata == {"general.architecture": "llama", "tokens": ["a", "bc"], "count": 7}
    assert file.tensor("f").tolist() == [[0, 1, 2], [3, 4, 5]]
    expected = [0.5 * number - 2.0 for number in [*range(16), *range(15, -1, -1)]]
    assert file.tensor("q4").tolist() == [expected]
    assert file.tensor("q8").tolist() == [0.25 * value for value in range(-16, 16)]


def test_what_is_no_such_file_is_refused(tmp_path):
    path = tmp_path / "other"
    path.write_bytes(b"GGUX" + bytes(60))
    with pytest.raises(GgufError, match="no GGUF file"):
        Gguf(path)
    whole = written([("odd", (32,), 99, bytes(32))])
    path.write_bytes(whole[:40])
    with pytest.raises(GgufError, match="too early"):
        Gguf(path)
    path.write_bytes(whole)
    with pytest.raises(GgufError, match="type 99"):
        Gguf(path).tensor("odd")
