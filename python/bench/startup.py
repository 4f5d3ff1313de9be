"""What an engine pays before its first transfer: prints one JSON object of milliseconds and bytes.

    startup.py nixl_cu12          the package that is installed under that name
"""

import importlib
import json
import os
import sys
import time

# Counted separately: an engine has it anyway.
import numpy

REGIONS, LENGTH = 10_000, 4096


def main(package):
    marks = [time.perf_counter()]

    def took():
        marks.append(time.perf_counter())
        return round((marks[-1] - marks[-2]) * 1e3, 3)

    api = importlib.import_module(f"{package}._api")
    result = {"import": took()}
    one = api.nixl_agent("one")
    result["agent"] = took()
    # Apart from each other, so that none is the neighbour of the next.
    pool = numpy.zeros(2 * REGIONS * LENGTH, numpy.uint8)
    address = pool.ctypes.data
    regions = [(address + 2 * LENGTH * i, LENGTH, 0, "") for i in range(REGIONS)]
    other = api.nixl_agent("other")
    other.register_memory(regions[:1], "DRAM")
    took()
    one.register_memory(regions, "DRAM")
    result["register"] = took()
    metadata = one.get_agent_metadata()
    result["metadata"] = took()
    result["bytes"] = len(metadata)
    took()
    other.add_remote_agent(metadata)
    result["load"] = took()
    last = api.nixl_agent.get_xfer_descs(other, [(address + 2 * LENGTH * (REGIONS - 1), LENGTH, 0)], "DRAM")
    assert other.check_remote_metadata("one", last)
    print(json.dumps(result), flush=True)
    # The stock package crashes at the end of the interpreter on machines without a GPU.
    os._exit(0)


main(sys.argv[1])
