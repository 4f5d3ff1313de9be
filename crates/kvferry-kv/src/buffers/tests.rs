use std::sync::Arc;

use kvferry::{RegionId, SharedBuf};

use super::*;
use crate::error::BufferPlace;
use crate::testing::{LonePage, agent, buffers, kv};

fn register(buffers: &WorkerBuffers, agent: &Agent) -> Result<RegisteredBuffers, WorkerBuffersError> {
    // SAFETY: the pages outlive the agents of these tests.
    unsafe { buffers.register_raw(agent) }
}

/// The error of buffers that are not registered, after making sure that nothing of them is.
fn refused(buffers: &WorkerBuffers) -> String {
    let agent = agent();
    let error = register(buffers, &agent).expect_err("bad");
    assert_eq!(agent.regions(), []);
    assert!(!error.remedy().is_empty());
    let dry = buffers.validate(&agent);
    assert!(dry.iter().any(|fault| Some(fault) == error.fault()), "{error} is not in {dry:?}");
    error.to_string()
}

#[test]
fn all_buffers_are_registered_and_taken_back() {
    let page = LonePage::new();
    let agent = agent();
    let buffers = buffers(&page);
    assert_eq!(buffers.validate(&agent), []);
    let mut registered = register(&buffers, &agent).expect("good");
    assert_eq!(registered.ids().len(), 80 + 5 + 5);
    assert_eq!(agent.regions().len(), 90);
    let layout = registered.layout();
    assert_eq!((&layout.kv, &layout.aux, &layout.state), (&buffers.kv, &buffers.aux, &buffers.state));
    registered.deregister().expect("no peer");
    assert_eq!((registered.ids(), agent.regions().len()), (&[][..], 0));
    registered.deregister().expect("nothing left to do");
}

#[test]
fn dropping_takes_the_buffers_back() {
    let page = LonePage::new();
    let agent = agent();
    let registered = register(&buffers(&page), &agent).expect("good");
    drop(registered);
    assert_eq!(agent.regions(), []);
}

#[test]
fn errors_name_the_entry_in_the_workers_words() {
    let page = LonePage::new();
    let long = 1_288_490_188;
    let end = page.addr + LonePage::LEN;
    let cause = format!(
        "1.2 GiB: address is not mapped from {end:#x} on; allocate the pool before the engine starts \
         (register.unmapped)"
    );

    let mut bad = buffers(&page);
    (bad.kv[41].len, bad.kv[41].item_len) = (long, long / 4);
    assert_eq!(refused(&bad), format!("kv entry 41 of 80 (layer 1 V, DRAM): {:#x}, {cause}", page.addr));

    let mut bad = buffers(&page);
    (bad.aux[3].len, bad.aux[3].item_len) = (long, 1);
    assert_eq!(refused(&bad), format!("aux row buffer 3 of 5 (DRAM): {:#x}, {cause}", page.addr + 100));

    let mut bad = buffers(&page);
    let tensor = &mut bad.state[1].tensors[2];
    (tensor.len, tensor.item_len) = (long, 1);
    assert_eq!(
        refused(&bad),
        format!("state component 1 (swa), tensor 2 (layer 3, DRAM): {:#x}, {cause}", page.addr + 8)
    );
    bad.state[1].tensors[2].layer = None;
    bad.aux[0].ptr = page.addr + 5000;
    let text = refused(&bad);
    assert!(text.starts_with("aux row buffer 0 of 5 (DRAM): "), "{text}");
    assert!(text.ends_with("(register.unmapped); and 1 other"), "{text}");
}

#[test]
fn gpu_memory_is_refused_until_it_is_built() {
    let page = LonePage::new();
    let mut bad = buffers(&page);
    (bad.kv[41].kind, bad.kv[41].device) = (MemoryKind::Vram, 3);
    let text = refused(&bad);
    let head = format!("kv entry 41 of 80 (layer 1 V, VRAM device 3): {:#x}, 3.9 KiB: ", page.addr);
    assert!(text.starts_with(&head), "{text}");
    if text.ends_with("(register.vram_no_driver)") {
        assert!(text.contains("libcuda.so.1 is in none of "), "{text}");
        assert!(text.contains("/usr/lib"), "{text}");
    } else {
        assert!(text.ends_with("(register.unsupported_kind)"), "{text}");
    }
}

#[test]
fn what_is_null_or_empty_is_left_out() {
    let page = LonePage::new();
    let agent = agent();
    let mut some = buffers(&page);
    // A null address with a length, and of a kind that could not be registered: left out like the others.
    (some.kv[0].ptr, some.kv[0].kind) = (0, MemoryKind::Vram);
    (some.kv[1].len, some.kv[1].item_len) = (0, 0);
    some.aux[4].ptr = 0;
    some.state[0].tensors.iter_mut().for_each(|tensor| tensor.len = 0);
    assert_eq!(some.validate(&agent), []);
    let registered = register(&some, &agent).expect("good");
    assert_eq!(agent.regions().len(), 90 - 5);
    // A peer sees them in their places.
    let layout = registered.layout();
    assert_eq!((layout.kv.len(), layout.kv[0].ptr, layout.kv[0].len), (80, 0, 0));
    assert_eq!((layout.kv[1].ptr, layout.kv[1].layer), (0, 1));
    assert_eq!((layout.aux[4].ptr, layout.aux[4].len), (0, 0));
    assert_eq!(layout.kv[2..], some.kv[2..]);
    drop(registered);
    let none = register(&WorkerBuffers::default(), &agent).expect("nothing to do");
    assert_eq!((none.ids().len(), agent.regions().len()), (0, 0));
}

#[test]
fn an_item_length_divides_the_length() {
    let page = LonePage::new();
    let mut bad = buffers(&page);
    bad.kv[2].item_len = 300;
    bad.aux[1].item_len = 0;
    let text = refused(&bad);
    assert_eq!(
        text,
        format!(
            "kv entry 2 of 80 (layer 2 K, DRAM): {:#x}, 3.9 KiB: item length 300 does not divide the length \
             4000; give the item length in bytes as one page (or row) of that buffer takes \
             (buffers.item_length); and 1 other",
            page.addr
        )
    );
}

#[test]
fn a_dry_run_lists_every_fault_in_the_workers_order() {
    let page = LonePage::new();
    let agent = agent();
    let mut bad = WorkerBuffers { kv: kv(&page, 150), ..buffers(&page) };
    for entry in bad.kv.iter_mut().skip(40) {
        entry.ptr = page.addr + 8192;
    }
    bad.kv[7].item_len = 3;
    bad.kv[299].item_len = 7;
    (bad.kv[60].kind, bad.kv[60].device) = (MemoryKind::Vram, 0);
    bad.aux[0].ptr = u64::MAX;
    bad.state[1].tensors[0].ptr = page.addr + 4090;
    let faults = bad.validate(&agent);
    assert_eq!(agent.regions(), []);
    // One for each bad entry, and two for the last pool, which is wrong in two ways.
    assert_eq!(faults.len(), 1 + 260 + 1 + 2);
    let text = faults[0].to_string();
    assert!(text.starts_with("kv entry 7 of 300 (layer 7 K, DRAM): "), "{text}");
    let indices: Vec<usize> = faults
        .iter()
        .filter_map(|fault| match fault.place {
            BufferPlace::Kv { index, .. } => Some(index),
            _ => None,
        })
        .collect();
    let expected: Vec<usize> = [7].into_iter().chain(40..300).chain([299]).collect();
    assert_eq!(indices, expected);
    assert_eq!(faults[21].desc.kind, MemoryKind::Vram);
    let codes: Vec<&str> = faults[261..].iter().map(BufferFault::code).collect();
    assert_eq!(codes, ["register.unmapped", "register.overflow", "register.unmapped"]);
    let error = register(&bad, &agent).expect_err("bad");
    assert!(error.to_string().ends_with("; and 263 others"), "{error}");
}

/// Shared memory whose owner tells when it is dropped.
struct Pool {
    buffer: SharedBuf,
    alive: Arc<()>,
}

// SAFETY: the buffer's own promise.
unsafe impl RegionOwner for Pool {
    fn regions(&self) -> Vec<RegionDesc> {
        let _ = &self.alive;
        self.buffer.regions()
    }
}

/// A pool of ten items of 400 bytes, and the buffers in it.
fn owned(agent: &Agent) -> (Pool, Arc<()>, WorkerBuffers) {
    let alive = Arc::new(());
    let pool = Pool { buffer: agent.alloc(4000).expect("memory"), alive: alive.clone() };
    let entry = KvEntry {
        ptr: pool.buffer.addr(),
        len: 4000,
        item_len: 400,
        kind: MemoryKind::Dram,
        device: 0,
        layer: 0,
        part: KvPart::Packed,
    };
    (pool, alive, WorkerBuffers { kv: vec![entry], ..WorkerBuffers::default() })
}

#[test]
fn an_owner_is_kept_until_the_buffers_are_free() {
    let agent = agent();
    let (pool, alive, buffers) = owned(&agent);
    let mut registered = buffers.register(&agent, pool).expect("good");
    assert_eq!(Arc::strong_count(&alive), 2);
    assert!(agent.regions().iter().all(|info| info.shared));
    registered.deregister().expect("no peer");
    assert_eq!(Arc::strong_count(&alive), 1);

    let (pool, alive, buffers) = owned(&agent);
    drop(buffers.register(&agent, pool).expect("good"));
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[test]
fn an_owner_comes_back_when_its_buffers_are_refused() {
    let agent = agent();
    let (pool, alive, mut buffers) = owned(&agent);
    buffers.kv[0].ptr += 1;
    let rejected = buffers.register(&agent, pool).expect_err("one byte is not the owner's");
    assert_eq!(rejected.error.code(), "buffers.not_owned");
    let text = rejected.to_string();
    assert!(text.starts_with("kv entry 0 of 1 (layer 0 K+V, DRAM): "), "{text}");
    assert!(
        text.contains("it is not inside the owner's memory; hand over the owner of every buffer"),
        "{text}"
    );
    assert_eq!((Arc::strong_count(&alive), agent.regions().len()), (2, 0));

    buffers.kv[0].ptr -= 1;
    buffers.kv[0].item_len = 3;
    let rejected = buffers.register(&agent, rejected.owner).expect_err("no whole number of items");
    assert_eq!((rejected.error.code(), agent.regions().len()), ("buffers.item_length", 0));

    // What is left out needs no owner.
    buffers.kv[0].item_len = 400;
    buffers.aux = vec![AuxBuffer { ptr: 0, len: 8, item_len: 8 }];
    let registered = buffers.register(&agent, rejected.owner).expect("good");
    assert!(registered.ids().iter().all(|id| *id > RegionId(0)));
}
