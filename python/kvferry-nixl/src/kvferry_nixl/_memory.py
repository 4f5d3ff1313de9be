"""Descriptors of tensors. Nobody's tensor library is imported."""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

import numpy
from kvferry_nixl._log import logger


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor of torch, or has its methods."""
    return hasattr(value, "data_ptr") and hasattr(value, "element_size") and hasattr(value, "is_contiguous")


def descs_of_tensors(tensors: List[Any]) -> Tuple[Optional[str], numpy.ndarray]:
    """Memory type and N x 3 array of contiguous tensors on one device; None and a log line if they are not."""
    rows = numpy.zeros((len(tensors), 3), numpy.uint64)
    devices = set()
    for place, tensor in enumerate(tensors):
        if not is_tensor(tensor):
            logger.error("A list of tensors holds only tensors")
            return None, rows
        if not tensor.is_contiguous():
            logger.error("Please use a list of contiguous Tensors")
            return None, rows
        device = tensor.device
        devices.add(str(device))
        index = device.index if device.type != "cpu" and device.index is not None else 0
        rows[place] = tensor.data_ptr(), tensor.numel() * tensor.element_size(), index
    if len(devices) > 1:
        logger.error("Please make sure all tensors are on the same device, these are on %s", ", ".join(sorted(devices)))
        return None, rows
    return ("DRAM" if devices <= {"cpu"} else "VRAM"), rows
