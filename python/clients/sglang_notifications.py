"""SGLang 0.5.16, whose decode side learns from notifications of `nixl` that a request's pages are there.

Later releases tell it over a socket of their own; here every WRITE carries a tag (`ROOM_kv_CHUNK_LAST_RANK`, `ROOM_aux`,
`ROOM_state_RANK`), and a request is done when all tags have come. It is the client program for the current release
(`sglang_client.py`, which must be on PYTHONPATH) with what differs put in: how that release is told its rank, and the
arguments of its sender. SGLang's classes are its own, all other arguments those of the client program.

The last line is `RESULT PASS` or `RESULT FAIL`.
"""

from __future__ import annotations

import os
import sys

# Python looks first where this file lies, and there are programs with names that SGLang imports from packages.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != HERE]

import sglang_client  # noqa: E402


def publish_context(options, mode, tp, pp, tp_rank, pp_rank):
    """Tells that release its configuration and its rank, as its own start-up would."""
    from sglang.srt.distributed import parallel_state
    from sglang.srt.layers import dp_attention
    from sglang.srt.runtime_context import get_context, get_parallel
    from sglang.srt.server_args import ServerArgs

    arguments = ServerArgs(
        model_path="dummy",
        device="cpu",
        tp_size=tp,
        pp_size=pp,
        page_size=options.page_size,
        disaggregation_mode=mode,
        disaggregation_transfer_backend="nixl",
        disaggregation_bootstrap_port=options.port,
        host="127.0.0.1",
        port=30000,
    )
    get_context().set_server_args(arguments)
    ranks = get_parallel().override(
        attn_tp_size=tp, attn_tp_rank=tp_rank, attn_cp_size=1, attn_cp_rank=0, pp_size=pp, pp_rank=pp_rank
    )
    # For the life of the process.
    ranks.__enter__()
    publish_context.ranks = ranks
    dp_attention._ATTN_DP_SIZE, dp_attention._ATTN_DP_RANK = 1, 0
    parallel_state._PP = sglang_client.FileGroup(options.workdir, tp_rank, pp_rank, pp)
    return arguments


def differences(options):
    """Gives the sender the arguments that only that release has, and the rows of metadata a way to become empty."""
    from sglang.srt.disaggregation import nixl, utils

    class Sender(nixl.NixlKVSender):
        """Its own, told to which ranks it sends."""

        def __init__(self, manager, address, room):
            super().__init__(manager, address, room, list(range(options.decode_tp)), options.pp_rank)

        def send(self, kv_indices, state_indices=None, num_kv_tokens=None):
            super().send(kv_indices, state_indices)

    nixl.NixlKVSender = Sender
    # As its decode scheduler does with a row that it gives back.
    utils.MetadataBuffers.clear_slot = lambda self, row: self.bootstrap_room[row].zero_()


originals = {}


def run_prefill(options, plan, result):
    """The client program's, which takes the sender from the module when it starts."""
    differences(options)
    originals["prefill"](options, plan, result)


def run_decode(options, plan, result):
    """The client program's."""
    differences(options)
    originals["decode"](options, plan, result)


def main() -> int:
    """Puts in what differs, and runs the client program."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
    sglang_client.publish_context = publish_context
    originals.update(prefill=sglang_client.run_prefill, decode=sglang_client.run_decode)
    sglang_client.run_prefill, sglang_client.run_decode = run_prefill, run_decode
    # What it starts as its workers.
    sglang_client.__file__ = os.path.abspath(__file__)
    return sglang_client.main()


if __name__ == "__main__":
    sys.exit(main())
