"""Tensors: recognised by the module `torch`, if something imported it before; here a stand-in of that name."""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass

import numpy as np

from .normal import attempt, dlist
from .registry import case


def torch_stand_in():
    """A module `torch` with as much of a tensor as descriptors need."""
    module = types.ModuleType("torch")

    @dataclass(frozen=True)
    class device:  # noqa: N801
        type: str
        index: int | None

        def __str__(self) -> str:
            return self.type if self.index is None else f"{self.type}:{self.index}"

    class Tensor:
        def __init__(self, array: np.ndarray, contiguous: bool = True, device: int = -1) -> None:
            self.array, self.contiguous, self.index = array, contiguous, device
            self.device = place(device)

        def __getitem__(self, place) -> Tensor:
            return Tensor(self.array[place], self.contiguous, self.index)

        def is_contiguous(self) -> bool:
            return self.contiguous

        def data_ptr(self) -> int:
            return self.array.ctypes.data

        def numel(self) -> int:
            return self.array.size

        def element_size(self) -> int:
            return self.array.itemsize

        def get_device(self) -> int:
            return self.index

        @property
        def is_cuda(self) -> bool:
            return self.index >= 0

        def nelement(self) -> int:
            return self.array.size

        @property
        def nbytes(self) -> int:
            return self.array.nbytes

    def place(index: int) -> device:
        return device("cpu", None) if index < 0 else device("cuda", index)

    Tensor.__module__ = device.__module__ = "torch"
    module.device = device
    module.Tensor, module.__version__ = Tensor, "0"
    sys.modules["torch"] = module
    return Tensor


def both(agent, descs, base):
    """The two lists that can be made of tensors."""
    out = []
    for call in (agent.get_xfer_descs, agent.get_reg_descs):
        made = attempt_list(call, descs, base)
        out.append(made)
    return out


def attempt_list(call, descs, base):
    try:
        made = call(descs)
    except Exception as error:
        return {"raises": type(error).__name__}
    return None if made is None else dlist(made, base)


@case(alone=True)
def one(nx, ctx):
    """One contiguous tensor is one descriptor."""
    tensor = torch_stand_in()
    array = np.zeros((16, 4), dtype=np.float32)
    return both(ctx.agent(), tensor(array), array.ctypes.data)


@case(alone=True)
def several(nx, ctx):
    """A list of tensors is a list of descriptors."""
    tensor = torch_stand_in()
    array = np.zeros((4, 256), dtype=np.float16)
    return both(ctx.agent(), [tensor(row) for row in array], array.ctypes.data)


@case(alone=True)
def on_a_device(nx, ctx):
    """Tensors of a device: their memory type and number come from them."""
    tensor = torch_stand_in()
    array = np.zeros((2, 64), dtype=np.uint8)
    agent = ctx.agent()
    return [
        both(agent, tensor(array, device=2), array.ctypes.data),
        both(agent, [tensor(row, device=1) for row in array], array.ctypes.data),
    ]


@case(alone=True)
def not_contiguous(nx, ctx):
    """Tensors with gaps are refused."""
    tensor = torch_stand_in()
    array = np.zeros((2, 64), dtype=np.uint8)
    agent = ctx.agent()
    return [
        both(agent, tensor(array, contiguous=False), 0),
        both(agent, [tensor(array), tensor(array, contiguous=False)], 0),
    ]


@case(alone=True)
def on_several_devices(nx, ctx):
    """Tensors of different devices are no list."""
    tensor = torch_stand_in()
    array = np.zeros((2, 64), dtype=np.uint8)
    return both(ctx.agent(), [tensor(array[0]), tensor(array[1], device=0)], 0)


@case(alone=True)
def registered(nx, ctx):
    """Tensors can be registered and deregistered."""
    tensor = torch_stand_in()
    array = np.zeros((4, 4096), dtype=np.uint8)
    agent = ctx.agent(backends=["UCX"])
    made = agent.register_memory([tensor(row) for row in array])
    return [dlist(made, array.ctypes.data), attempt(agent.deregister_memory, made)]


@case(alone=True)
def torch_is_not_imported(nx, ctx):
    """Neither importing nor making lists imports torch."""
    agent = ctx.agent()
    agent.get_xfer_descs([(1, 2, 0)], "DRAM")
    attempt(agent.get_xfer_descs, np.zeros(8, dtype=np.uint8))
    return "torch" in sys.modules
