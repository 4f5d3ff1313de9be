"""Bounds that callers feel. The best of several tries counts: the machine may be busy with others."""


from conftest import run_child



def test_a_hundred_thousand_indices_are_created_and_posted_within_5_ms():
    """make_prepped_xfer and transfer together, on int32 arrays."""
    out = run_child(
        """
        import time, numpy
        from nixl._api import nixl_agent
        count, block = 200_000, 256
        a, b = nixl_agent("a"), nixl_agent("b")
        x, y = numpy.ones(count * block, numpy.uint8), numpy.zeros(count * block, numpy.uint8)
        a.register_memory([(x.ctypes.data, x.nbytes, 0, "")], "DRAM")
        b.register_memory([(y.ctypes.data, y.nbytes, 0, "")], "DRAM")
        a.add_remote_agent(b.get_agent_metadata())
        rows = lambda z: numpy.array([[z.ctypes.data, block, 0, block, count]], numpy.uint64)
        near, far = a.prep_xfer_dlist("", rows(x), "DRAM"), a.prep_xfer_dlist("b", rows(y), "DRAM")
        ids = numpy.random.default_rng(0).permutation(count)[:100_000].astype(numpy.int32)
        best = 1e9
        for _ in range(15):
            begun = time.perf_counter()
            h = a.make_prepped_xfer("WRITE", near, ids, far, ids)
            a.transfer(h)
            best = min(best, time.perf_counter() - begun)
            while a.check_xfer_state(h) == "PROC":
                time.sleep(0.001)
            a.release_xfer_handle(h)
        assert y.reshape(count, block)[ids].all()
        print(best * 1000)
        """
    )
    print(f"{float(out):.2f} ms")
    assert float(out) < 5.0
