use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use rustix::param::page_size;

use super::*;

mod load;

/// Private memory of whole pages, unmapped when dropped.
struct Pages {
    addr: u64,
    len: u64,
}

impl Pages {
    /// At an address that the kernel gives nobody who does not ask for it: another thread's memory must not
    /// land in a page that a test has unmapped.
    fn new(count: usize) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0x2000_0000_0000);
        let len = count * page_size();
        let addr = NEXT.fetch_add((len as u64).next_multiple_of(1 << 30), Ordering::Relaxed);
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: the kernel refuses a range that is in use.
        let start = unsafe { rustix::mm::mmap_anonymous(addr as *mut _, len, prot, flags) };
        Self { addr: start.expect("memory") as u64, len: len as u64 }
    }

    fn desc(&self) -> RegionDesc {
        dram(self.addr, self.len)
    }

    fn page(&self, index: u64) -> u64 {
        self.addr + index * page_size() as u64
    }

    fn protect(&self, index: u64, prot: MprotectFlags) {
        let page = self.page(index) as *mut _;
        // SAFETY: the page is ours, and no Rust object is in it.
        unsafe { rustix::mm::mprotect(page, page_size(), prot) }.expect("our page");
    }

    fn unmap(&self, index: u64) {
        // SAFETY: the page is ours, and no Rust object is in it.
        unsafe { rustix::mm::munmap(self.page(index) as *mut _, page_size()) }.expect("our page");
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the range is ours, and no Rust object is in it.
        let _ = unsafe { rustix::mm::munmap(self.addr as *mut _, self.len as usize) };
    }
}

fn dram(addr: u64, len: u64) -> RegionDesc {
    RegionDesc { addr, len, kind: MemoryKind::Dram, device: 0 }
}

fn register(registry: &Registry, descs: &[RegionDesc]) -> Result<Vec<RegionId>, RegisterError> {
    // SAFETY: nothing in these tests copies to or from regions.
    unsafe { registry.register(descs, None) }
}

/// The one fault of a region.
fn fault(desc: RegionDesc) -> String {
    let registry = Registry::default();
    let faults = registry.validate(&[desc]);
    assert_eq!(faults.len(), 1, "{desc}");
    let error = register(&registry, &[desc]).expect_err("bad");
    assert_eq!(error.to_string(), faults[0].to_string());
    assert!(!error.remedy().is_empty());
    let text = error.to_string();
    let head = format!("region 0 of 1: {desc}: ");
    text.strip_prefix(&head).unwrap_or_else(|| panic!("{text:?} lacks {head:?}")).to_owned()
}

#[test]
fn a_batch_is_registered_whole_or_not_at_all() {
    let registry = Registry::default();
    let pages = Pages::new(4);
    let gone = Pages::new(3);
    gone.unmap(1);
    let batch = [pages.desc(), gone.desc(), dram(pages.addr, 10), dram(0, 1), dram(8, 0)];
    let error = register(&registry, &batch).expect_err("three are bad");
    assert_eq!(
        error.to_string(),
        format!(
            "region 1 of 5: {:#x}, 12 KiB, DRAM: address is not mapped from {:#x} on (register.unmapped); and 2 \
             others",
            gone.addr,
            gone.page(1)
        )
    );
    assert_eq!((registry.regions(), registry.generation()), (Vec::new(), 0));
    let ids = register(&registry, &[pages.desc(), dram(pages.addr, 10)]).expect("good");
    assert_eq!(ids.len(), 2);
    assert_eq!(register(&registry, &[]).expect("nothing to do"), []);
    let infos = registry.regions();
    assert_eq!(infos.iter().map(|info| info.id).collect::<Vec<_>>(), ids);
    assert_eq!(infos[1].desc, dram(pages.addr, 10));
    assert!(infos.iter().all(|info| !info.shared && !info.quarantined));
}

#[test]
fn each_cause_is_named() {
    let pages = Pages::new(6);
    let page = page_size() as u64;
    pages.protect(1, MprotectFlags::READ);
    pages.protect(3, MprotectFlags::empty());
    pages.unmap(5);
    assert_eq!(fault(dram(pages.addr, 0)), "length is zero (register.zero_length)");
    assert_eq!(fault(dram(0, 5)), "address is null (register.null)");
    assert_eq!(
        fault(dram(u64::MAX - 4, 5)),
        "address plus length passes the end of the address space (register.overflow)"
    );
    assert_eq!(
        fault(dram(pages.addr, 2 * page)),
        format!("memory is not writable from {:#x} on (register.no_access)", pages.page(1))
    );
    assert_eq!(
        fault(dram(pages.page(2), 2 * page)),
        format!("memory is not readable from {:#x} on (register.no_access)", pages.page(3))
    );
    assert_eq!(
        fault(dram(pages.page(4), 2 * page)),
        format!("address is not mapped from {:#x} on (register.unmapped)", pages.page(5))
    );
    // Bit 63 is legal in an address; there is just nothing in this process.
    let high = 1 << 63;
    assert_eq!(fault(dram(high, 5)), format!("address is not mapped from {high:#x} on (register.unmapped)"));
    for kind in [MemoryKind::File, MemoryKind::Block, MemoryKind::Object] {
        let desc = RegionDesc { kind, ..dram(0, 4096) };
        assert_eq!(fault(desc), format!("{kind} memory is not built yet (register.unsupported_kind)"));
    }
}

#[test]
fn vram_is_refused_with_the_places_where_the_driver_is_not() {
    let text = fault(RegionDesc { kind: MemoryKind::Vram, device: 1, ..dram(0x7f00_0000_0000, 4096) });
    match cuda::find() {
        Ok(_) => assert_eq!(text, "GPU memory is not built yet (register.unsupported_kind)"),
        Err(places) => {
            assert!(
                text.starts_with("GPU memory needs the CUDA driver, and libcuda.so.1 is in none of "),
                "{text}"
            );
            assert!(text.ends_with("(register.vram_no_driver)"), "{text}");
            assert!(places.len() >= 4);
            for place in places.iter() {
                assert!(text.contains(&place.display().to_string()), "{place:?} is not in {text:?}");
            }
        }
    }
}

#[test]
fn a_dry_run_lists_a_hundred_faults_and_registers_nothing() {
    let registry = Registry::default();
    let pages = Pages::new(1);
    let batch: Vec<RegionDesc> =
        (0..300).map(|i| if i % 2 == 0 { pages.desc() } else { dram(0, 1) }).collect();
    let faults = registry.validate(&batch);
    assert_eq!(faults.len(), 100);
    assert_eq!(
        faults.iter().map(|fault| fault.index).collect::<Vec<_>>(),
        (0..100).map(|i| 2 * i + 1).collect::<Vec<_>>()
    );
    assert!(faults.iter().all(|fault| fault.total == 300 && fault.code() == "register.null"));
    assert!(registry.regions().is_empty());
    assert!(registry.validate(&[pages.desc()]).is_empty());
    let error = register(&registry, &batch).expect_err("half of them are bad");
    assert!(error.to_string().ends_with("(register.null); and 149 others"), "{error}");
}

#[test]
fn ids_are_never_reused_and_keys_are_random() {
    let registry = Registry::default();
    let pages = Pages::new(1);
    let mut ids = HashSet::new();
    let mut keys = HashSet::new();
    for _ in 0..10 {
        let batch = register(&registry, &[pages.desc(); 5]).expect("good");
        for id in &batch {
            assert!(ids.insert(*id));
            let region = registry.get(*id).expect("registered");
            assert!(keys.insert(region.key()));
            assert_eq!((region.id(), region.desc()), (*id, pages.desc()));
        }
        registry.begin_deregister(&batch).expect("known");
        registry.finish_deregister(&batch);
    }
    assert!(registry.regions().is_empty());
    // Of fifty numbers of 64 bits, all below 2^56 would be a broken source.
    assert!(keys.iter().any(|key| key.0 >> 56 != 0));
}

#[test]
fn a_region_gives_slices_of_itself_only() {
    let registry = Registry::default();
    let pages = Pages::new(2);
    let id = register(&registry, &[pages.desc()]).expect("good")[0];
    let region = registry.get(id).expect("registered");
    let slice = region.slice(pages.addr + 5, 10).expect("inside");
    assert_eq!((slice.addr(), slice.len()), (pages.addr + 5, 10));
    assert!(region.slice(pages.addr, pages.len).is_some());
    assert!(region.slice(pages.addr - 1, 1).is_none());
    assert!(region.slice(pages.addr + 1, pages.len).is_none());
    assert!(region.slice(pages.addr + 1, u64::MAX).is_none());
}

#[test]
fn ranges_inside_an_allocation_are_shared() {
    let registry = Registry::default();
    let buffer = registry.allocs().alloc(4 * page_size(), false).expect("memory");
    let desc = buffer.desc();
    let inner = dram(desc.addr + 100, 1000);
    let ids = register(&registry, &[desc, inner]).expect("good");
    let offsets = ids.iter().map(|id| match registry.get(*id).expect("registered").backing() {
        Backing::Shared { memory, offset, .. } => {
            assert_eq!(memory.addr(), desc.addr);
            *offset
        }
        Backing::Private { .. } => panic!("private"),
    });
    assert_eq!(offsets.collect::<Vec<_>>(), [0, 100]);
    assert!(registry.regions().iter().all(|info| info.shared));
    // A registration keeps the memory mapped after the last buffer is gone.
    drop(buffer);
    assert_eq!(registry.validate(&[desc]), []);
    registry.begin_deregister(&ids).expect("known");
    assert_eq!(registry.validate(&[desc]), []);
    registry.finish_deregister(&ids);
    assert!(registry.allocs().find(desc.addr, 1).is_none());
}

#[test]
fn a_quarantined_region_is_out_of_reach_and_kept() {
    let registry = Registry::default();
    let pages = Pages::new(2);
    let owner: Owner = Arc::new(());
    let weak = Arc::downgrade(&owner);
    // SAFETY: nothing copies to or from the regions.
    let ids = unsafe { registry.register(&[pages.desc(), dram(pages.addr, 8)], Some(owner)) }.expect("good");
    assert_eq!(registry.generation(), 1);
    assert_eq!(registry.snapshot().1.len(), 2);

    let unknown = RegionId(99);
    let error = registry.begin_deregister(&[ids[0], unknown]).expect_err("one is unknown");
    assert_eq!(error.to_string(), "region 99 is not registered with this agent (deregister.unknown)");
    assert!(registry.quarantined().is_empty());

    registry.begin_deregister(&[ids[0], ids[0]]).expect("known");
    assert_eq!(registry.quarantined(), [ids[0]]);
    assert!(registry.get(ids[0]).is_none());
    let (generation, live) = registry.snapshot();
    assert_eq!((generation, live.len(), live[0].id()), (2, 1, ids[1]));
    assert_eq!(registry.range_map().len(), 1);
    assert!(registry.range_map().find(MemoryKind::Dram, 0, pages.addr, 9).is_none());
    let listed: Vec<bool> = registry.regions().iter().map(|info| info.quarantined).collect();
    assert_eq!(listed, [true, false]);
    // Asking again is how a caller waits on; it changes nothing.
    registry.begin_deregister(&ids[..1]).expect("known");
    assert_eq!(registry.generation(), 2);

    // What is not quarantined is not forgotten by mistake.
    registry.finish_deregister(&ids);
    assert!(registry.quarantined().is_empty());
    assert!(registry.get(ids[1]).is_some());
    assert!(weak.strong_count() > 0);
    let next = ids[1].0 + 1;
    assert_eq!(registry.live_ids(), (next, vec![ids[1]]));
    assert!(!live[0].is_gone());
    let held = registry.get(ids[1]).expect("registered");
    drop(live);
    registry.begin_deregister(&ids[1..]).expect("known");
    assert!(held.is_gone(), "transfers that hold the region see that it is taken back");
    registry.finish_deregister(&ids[1..]);
    assert_eq!(registry.live_ids(), (next, Vec::new()));
    assert!(weak.strong_count() > 0, "a transfer still holds the region");
    drop(held);
    assert_eq!(weak.strong_count(), 0);
    assert!(registry.begin_deregister(&ids).is_err());
}

#[test]
fn an_owner_may_call_back_when_it_is_dropped() {
    struct Curious(Arc<Registry>, Arc<AtomicUsize>);
    impl Drop for Curious {
        fn drop(&mut self) {
            self.1.store(1 + self.0.regions().len(), Ordering::Relaxed);
        }
    }
    let registry = Arc::new(Registry::default());
    let seen = Arc::new(AtomicUsize::new(0));
    let owner = Curious(Arc::clone(&registry), Arc::clone(&seen));
    let pages = Pages::new(1);
    // SAFETY: nothing copies to or from the region.
    let ids = unsafe { registry.register(&[pages.desc()], Some(Arc::new(owner))) }.expect("good");
    let (done, finished) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        registry.begin_deregister(&ids).expect("known");
        registry.finish_deregister(&ids);
        done.send(()).expect("the test waits");
    });
    finished.recv_timeout(Duration::from_secs(10)).expect("the registry waits for itself");
    assert_eq!(seen.load(Ordering::Relaxed), 1);
}

#[test]
fn the_range_map_is_made_once_a_change() {
    let registry = Registry::default();
    let pages = Pages::new(4);
    let page = page_size() as u64;
    register(&registry, &[dram(pages.addr, 2 * page), dram(pages.page(2), page)]).expect("good");
    let first = registry.range_map();
    assert!(Arc::ptr_eq(&first, &registry.range_map()));
    assert_eq!((first.len(), registry.overlapping()), (2, 0));
    // Overlaps and repeats are legal, and counted.
    register(&registry, &[dram(pages.page(1), page), dram(pages.page(2), page)]).expect("good");
    assert!(!Arc::ptr_eq(&first, &registry.range_map()));
    assert_eq!((first.len(), registry.range_map().len(), registry.overlapping()), (2, 4, 4));
}

#[test]
fn an_agent_holds_a_bounded_number_of_regions() {
    let registry = Registry::with_room_for(3);
    let pages = Pages::new(1);
    let ids = register(&registry, &[pages.desc(); 2]).expect("room");
    let error = register(&registry, &[pages.desc(); 4]).expect_err("too many");
    let text = format!(
        "region 1 of 4: {}: the agent would hold more than 3 regions (register.limit); and 2 others",
        pages.desc()
    );
    assert_eq!(error.to_string(), text);
    register(&registry, &[pages.desc()]).expect("room");
    registry.begin_deregister(&ids).expect("known");
    register(&registry, &[pages.desc()]).expect_err("a quarantined region still counts");
    registry.finish_deregister(&ids);
    register(&registry, &[pages.desc()]).expect("room again");
}
