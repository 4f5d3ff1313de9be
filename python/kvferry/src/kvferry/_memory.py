"""Where the memory of Python objects lies: arrays, tensors, buffers, without a copy and without importing anybody."""

from __future__ import annotations

from typing import Any, List, Tuple

import numpy

from kvferry._kvferry import SharedBuf

# Address, bytes, kind (0 host, 1 GPU), device.
Range = Tuple[int, int, int, int]

DRAM, VRAM = 0, 1


def ranges_of(owner: Any) -> List[Range]:
    """The ranges of an array, a tensor, a buffer, or of each in a list of these."""
    if isinstance(owner, (list, tuple)):
        return [part for item in owner for part in ranges_of(item)]
    return [range_of(owner)]


def range_of(owner: Any) -> Range:
    """Address, bytes, kind and device of an object's memory.

    Raises TypeError for what has none, ValueError for what is not contiguous or not writable.
    """
    if isinstance(owner, SharedBuf):
        return owner.address, owner.nbytes, DRAM, 0
    if hasattr(owner, "data_ptr") and hasattr(owner, "element_size"):
        return _tensor(owner)
    interface = getattr(owner, "__cuda_array_interface__", None)
    if interface is not None:
        return _cuda(owner, interface)
    if isinstance(owner, numpy.ndarray):
        return _array(owner)
    if hasattr(owner, "__dlpack__"):
        return _array(numpy.from_dlpack(owner))
    try:
        view = memoryview(owner)
    except TypeError:
        raise TypeError(
            f"{type(owner).__name__} has no memory to register: arrays, tensors, buffers and lists of these have"
        ) from None
    if not view.contiguous:
        raise ValueError("the buffer is not contiguous")
    if view.readonly:
        raise ValueError("the buffer is read-only: peers could not write into it")
    return _array(numpy.frombuffer(view, numpy.uint8))


def _array(array: numpy.ndarray) -> Range:
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        raise ValueError("the array is not contiguous: register what it is a view of, and prepare a grid")
    if not array.flags.writeable:
        raise ValueError("the array is read-only: peers could not write into it")
    return array.ctypes.data, array.nbytes, DRAM, 0


def _tensor(tensor: Any) -> Range:
    """Of a torch tensor, or of anything that has its methods."""
    if not tensor.is_contiguous():
        raise ValueError("the tensor is not contiguous: register what it is a view of, and prepare a grid")
    nbytes = tensor.numel() * tensor.element_size()
    device = tensor.device
    if device.type == "cpu":
        return tensor.data_ptr(), nbytes, DRAM, 0
    return tensor.data_ptr(), nbytes, VRAM, device.index or 0


def _cuda(owner: Any, interface: dict) -> Range:
    if interface.get("strides") is not None:
        raise ValueError("the GPU array is not contiguous")
    nbytes = int(numpy.prod(interface["shape"], dtype=numpy.uint64)) * numpy.dtype(interface["typestr"]).itemsize
    device = getattr(getattr(owner, "device", None), "id", 0)
    return interface["data"][0], nbytes, VRAM, int(device)


def as_rows(blocks: Any) -> numpy.ndarray:
    """Blocks as the engine takes them: an N x 3 array (address, bytes, device) or an N x 5 one (address, bytes, device,
    stride, count) of 64-bit integers, a list of tuples of either width, or objects that have memory."""
    if isinstance(blocks, numpy.ndarray) and blocks.ndim == 2 and blocks.dtype.kind in "iu":
        return numpy.ascontiguousarray(blocks).astype(numpy.uint64, copy=False)
    if isinstance(blocks, (list, tuple)) and blocks and isinstance(blocks[0], (list, tuple)):
        first = blocks[0]
        if all(isinstance(number, (int, numpy.integer)) for number in first):
            return numpy.array(blocks, dtype=numpy.uint64).reshape(len(blocks), -1)
    if isinstance(blocks, (list, tuple)) and not blocks:
        return numpy.zeros((0, 3), numpy.uint64)
    parts = ranges_of(blocks)
    return numpy.array([(addr, size, device) for addr, size, _, device in parts], numpy.uint64).reshape(-1, 3)
