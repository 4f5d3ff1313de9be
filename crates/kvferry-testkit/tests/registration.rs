//! What can be registered, what cannot and why, and how memory is given back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kvferry::{
    Agent, Code, DeregisterError, MemoryKind, Op, RegionDesc, RegionId, RegionOwner, RegisterCause,
    RegisterError, TransferOptions,
};
use kvferry_testkit::{
    MemoryClass, MprotectFlags, Pair, Pattern, PrivateMemory, agent, eventually, expect_done, run,
};

const PAGE: u64 = 4096;

fn dram(addr: u64, len: u64) -> RegionDesc {
    RegionDesc { addr, len, kind: MemoryKind::Dram, device: 0 }
}

/// Registers memory that outlives the agent's use of it.
fn register(agent: &Agent, descs: &[RegionDesc]) -> Result<Vec<RegionId>, RegisterError> {
    // SAFETY: every test keeps its memory until its agent is done with it, and bad ranges are refused.
    unsafe { agent.register_raw(descs) }
}

/// The error of a batch of one.
#[track_caller]
fn refused(agent: &Agent, desc: RegionDesc) -> RegisterError {
    let error = register(agent, &[desc]).expect_err("a region that cannot be");
    let faults = agent.validate(&[desc]);
    assert_eq!(error.fault(), faults.first(), "the dry run says the same");
    let code = Code::find(error.code()).expect("a code of the catalogue");
    assert_eq!(error.remedy(), code.remedy);
    assert!(error.to_string().ends_with(&format!("({})", error.code())), "{error}");
    assert!(agent.regions().is_empty());
    error
}

#[test]
fn each_cause_has_its_code_and_says_where() {
    let agent = agent("causes");
    let mut memory = PrivateMemory::new(16 * PAGE);
    let addr = memory.addr();
    assert_eq!(refused(&agent, dram(addr, 0)).code(), "register.zero_length");
    assert_eq!(refused(&agent, dram(0, 100)).code(), "register.null");
    assert_eq!(refused(&agent, dram(u64::MAX - 10, 100)).code(), "register.overflow");
    assert_eq!(refused(&agent, dram(addr, u64::MAX)).code(), "register.overflow");
    // Kernel space: a plain number here, with its highest bit set.
    assert_eq!(refused(&agent, dram(1 << 63, 100)).code(), "register.unmapped");
    for kind in [MemoryKind::File, MemoryKind::Block, MemoryKind::Object] {
        let error = refused(&agent, RegionDesc { kind, ..dram(addr, 100) });
        assert_eq!(error.code(), "register.unsupported_kind");
        assert!(error.to_string().contains(&kind.to_string()), "{error}");
    }

    memory.unmap(5 * PAGE, PAGE);
    let error = refused(&agent, dram(addr + PAGE, 9 * PAGE));
    assert_eq!(error.code(), "register.unmapped");
    assert!(error.to_string().contains(&format!("not mapped from {:#x} on", addr + 5 * PAGE)), "{error}");
    let error = refused(&agent, dram(addr + 10 * PAGE, 6 * PAGE + 1));
    assert!(error.to_string().contains(&format!("not mapped from {:#x} on", addr + 16 * PAGE)), "{error}");

    memory.protect(12 * PAGE, PAGE, MprotectFlags::READ);
    let error = refused(&agent, dram(addr + 10 * PAGE, 5 * PAGE));
    assert_eq!(error.code(), "register.no_access");
    assert!(error.to_string().contains(&format!("not writable from {:#x} on", addr + 12 * PAGE)), "{error}");
    memory.protect(12 * PAGE, PAGE, MprotectFlags::empty());
    let error = refused(&agent, dram(addr + 10 * PAGE, 5 * PAGE));
    assert!(error.to_string().contains(&format!("not readable from {:#x} on", addr + 12 * PAGE)), "{error}");
}

#[test]
fn the_first_bad_region_of_a_batch_is_named_in_full() {
    let agent = agent("text");
    let memory = PrivateMemory::new(80 * PAGE);
    let mut batch: Vec<_> = (0..80).map(|n| dram(memory.addr() + n * PAGE, PAGE)).collect();
    batch[41].len = 1_288_490_189;
    let (addr, end) = (batch[41].addr, memory.addr() + memory.len());
    let text = format!(
        "region 41 of 80: {addr:#x}, 1.2 GiB, DRAM: address is not mapped from {end:#x} on (register.unmapped)"
    );
    assert_eq!(register(&agent, &batch).expect_err("a region too long").to_string(), text);
    batch[50].len = 0;
    batch[79].addr = 0;
    let error = register(&agent, &batch).expect_err("three bad regions");
    assert_eq!(error.to_string(), format!("{text}; and 2 others"));
    let RegisterError::Region { fault, others } = error else { panic!("{error}") };
    assert_eq!((fault.index, fault.total, others), (41, 80, 2));
    assert_eq!(fault.cause, RegisterCause::Unmapped { from: end });
    // All or nothing: the good ones are not registered either.
    assert!(agent.regions().is_empty());
}

#[test]
fn gpu_memory_without_a_driver_names_the_places() {
    let agent = agent("vram");
    let desc = RegionDesc { kind: MemoryKind::Vram, device: 3, ..dram(0x7f12_0000_0000, 1 << 30) };
    let error = refused(&agent, desc);
    let text = error.to_string();
    if error.code() == "register.unsupported_kind" {
        // This machine has the driver.
        return;
    }
    assert_eq!(error.code(), "register.vram_no_driver");
    assert!(text.starts_with("region 0 of 1: 0x7f1200000000, 1 GiB, VRAM device 3: "), "{text}");
    assert!(text.contains("libcuda.so.1") && text.contains("/usr/lib"), "{text}");
}

#[test]
fn special_mappings_are_refused() {
    let agent = agent("special");
    // The kernel's own page of clock data: mapped, readable, and no memory of ours.
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    match maps.lines().find(|line| line.ends_with("[vvar]")) {
        Some(line) => {
            let start = line.split('-').next().and_then(|start| u64::from_str_radix(start, 16).ok());
            let error = refused(&agent, dram(start.expect("an address"), PAGE));
            assert_eq!(error.code(), "register.special_mapping", "{error}");
        }
        None => println!("skipped: no [vvar] is mapped"),
    }
    match Served::new(4 * PAGE) {
        Ok(served) => {
            let addr = served.memory.addr();
            let error = refused(&agent, dram(addr, 8 * PAGE));
            assert_eq!(error.code(), "register.special_mapping");
            let place = format!("served by userfaultfd from {:#x} on", addr + 2 * PAGE);
            assert!(error.to_string().contains(&place), "{error}");
        }
        Err(error) => println!("skipped: no userfaultfd: {error}"),
    }
}

#[test]
fn nothing_is_fine_and_overlaps_are_counted() {
    let agent = agent("overlaps");
    assert_eq!(register(&agent, &[]).expect("an empty batch"), []);
    assert!(agent.validate(&[]).is_empty());
    let memory = PrivateMemory::new(16 * PAGE);
    let whole = dram(memory.addr(), memory.len());
    let ids = register(&agent, &[whole, whole, dram(memory.addr() + 100, 10)]).expect("overlaps are legal");
    let apart = PrivateMemory::new(PAGE);
    register(&agent, &[dram(apart.addr(), PAGE)]).expect("a region");
    assert_eq!(agent.regions().len(), 4);
    assert_eq!(agent.stats().regions_overlapping, 3);
    agent.deregister(&ids[1..]).expect("nobody uses them");
    assert_eq!(agent.stats().regions_overlapping, 0);
    assert!(ids.is_sorted(), "ids count up");
}

#[test]
fn ten_thousand_regions_take_one_pass() {
    let agent = agent("many");
    let mut memory = PrivateMemory::new(20_000 * PAGE);
    // Each region is a mapping of its own, with a guard page behind it.
    for n in 0..10_000 {
        memory.protect((2 * n + 1) * PAGE, PAGE, MprotectFlags::empty());
    }
    let batch: Vec<_> = (0..10_000).map(|n| dram(memory.addr() + 2 * n * PAGE, PAGE)).collect();
    let begun = Instant::now();
    let ids = register(&agent, &batch).expect("ten thousand regions");
    let registered = begun.elapsed();
    assert_eq!(ids.len(), 10_000);
    let begun = Instant::now();
    let blob = agent.metadata();
    let exported = begun.elapsed();
    let begun = Instant::now();
    agent.deregister(&ids).expect("nobody uses them");
    let given_back = begun.elapsed();
    println!(
        "registered in {registered:?}, exported in {exported:?} ({} bytes), given back in {given_back:?}",
        blob.len()
    );
    // A pass over the mappings for each region would take minutes.
    assert!(registered + exported + given_back < Duration::from_secs(2));
    assert!(agent.regions().is_empty());
}

#[test]
fn the_dry_run_lists_what_is_wrong_up_to_a_hundred() {
    let agent = agent("dry");
    let memory = PrivateMemory::new(PAGE);
    let good = dram(memory.addr(), PAGE);
    let batch: Vec<_> = (0..400).map(|n| if n % 2 == 0 { good } else { dram(memory.addr(), 0) }).collect();
    let faults = agent.validate(&batch);
    assert_eq!(
        faults.iter().map(|fault| fault.index).collect::<Vec<_>>(),
        (0..100).map(|n| 2 * n + 1).collect::<Vec<_>>()
    );
    assert!(faults.iter().all(|fault| fault.total == 400 && fault.code() == "register.zero_length"));
    let mixed = [dram(0, 1), good, dram(memory.addr() + PAGE, 1)];
    let codes: Vec<_> = agent.validate(&mixed).iter().map(|fault| fault.code()).collect();
    assert_eq!(codes, ["register.null", "register.unmapped"]);
    assert!(agent.regions().is_empty());
}

#[test]
fn ids_are_given_back_once() {
    let agent = agent("ids");
    let memory = PrivateMemory::new(2 * PAGE);
    let ids = register(&agent, &[dram(memory.addr(), PAGE), dram(memory.addr() + PAGE, PAGE)])
        .expect("two regions");
    let unknown = RegionId(ids[1].0 + 1000);
    let error = agent.deregister(&[ids[0], unknown]).expect_err("an unknown id");
    assert_eq!(error, DeregisterError::Unknown { id: unknown });
    assert_eq!(error.code(), "deregister.unknown");
    assert_eq!(agent.regions().len(), 2, "nothing has changed");
    agent.deregister(&ids).expect("two regions");
    agent.deregister(&[]).expect("nothing");
    assert_eq!(agent.deregister(&ids[..1]).expect_err("gone").code(), "deregister.unknown");
    let again = register(&agent, &[dram(memory.addr(), PAGE)]).expect("a region");
    assert!(again[0] > ids[1], "an id is never used twice");
}

/// Memory that counts how many of it live.
struct Counted(PrivateMemory, Arc<AtomicUsize>, bool);

impl Counted {
    fn new(live: &Arc<AtomicUsize>, good: bool) -> Self {
        live.fetch_add(1, Ordering::SeqCst);
        Self(PrivateMemory::new(64 * PAGE), live.clone(), good)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::SeqCst);
    }
}

// SAFETY: as `PrivateMemory`; what is not mapped is refused.
unsafe impl RegionOwner for Counted {
    fn regions(&self) -> Vec<RegionDesc> {
        let mut regions = self.0.regions();
        if !self.2 {
            regions.push(dram(self.0.addr() + self.0.len(), PAGE));
        }
        regions
    }
}

#[test]
fn an_owner_comes_back_when_it_is_refused_and_is_kept_while_it_is_used() {
    let agent = agent("owner");
    let live = Arc::new(AtomicUsize::new(0));
    let rejected = agent.register(Counted::new(&live, false)).expect_err("a bad second region");
    assert_eq!(rejected.error.fault().map(|fault| (fault.index, fault.total)), Some((1, 2)));
    assert_eq!(live.load(Ordering::SeqCst), 1);
    drop(rejected);
    assert_eq!(live.load(Ordering::SeqCst), 0);
    assert!(agent.regions().is_empty());

    let registration = agent.register(Counted::new(&live, true)).expect("good memory");
    assert_eq!(registration.ids().len(), 1);
    let owner = registration.deregister().expect("nobody uses it");
    assert!(agent.regions().is_empty());
    assert_eq!((live.load(Ordering::SeqCst), Arc::strong_count(&owner)), (1, 1));
    drop(owner);
    assert_eq!(live.load(Ordering::SeqCst), 0);

    drop(agent.register(Counted::new(&live, true)).expect("good memory"));
    eventually("a dropped registration is forgotten", || {
        agent.regions().is_empty() && live.load(Ordering::SeqCst) == 0
    });
}

#[test]
fn a_dropped_registration_lives_as_long_as_transfers_of_it() {
    let agent = agent("self");
    let live = Arc::new(AtomicUsize::new(0));
    let (near, far) = (Counted::new(&live, true), Counted::new(&live, true));
    let block = |memory: &Counted| [kvferry::Block { addr: memory.0.addr(), len: memory.0.len(), device: 0 }];
    let (local, remote) = (block(&near), block(&far));
    let (near, far) = (agent.register(near).expect("memory"), agent.register(far).expect("memory"));
    let kind = MemoryKind::Dram;
    let options = TransferOptions::default();
    let transfer = agent.transfer_flat(Op::Write, (kind, &local), agent.name(), (kind, &remote), options);
    let transfer = transfer.expect("a transfer");
    run(&transfer);
    drop((near, far));
    // What it holds is not freed under it, and it cannot move anything any more.
    if transfer.post().is_ok() {
        let status = transfer.wait(Duration::from_secs(5)).expect("an end");
        assert!(
            matches!(&status, kvferry::Status::Failed(fault) if fault.code() == "region.revoked"),
            "{status}"
        );
    }
    assert!(live.load(Ordering::SeqCst) >= 1, "a transfer holds its registrations");
    drop(transfer);
    eventually("the memory is let go", || live.load(Ordering::SeqCst) == 0 && agent.regions().is_empty());
}

#[test]
fn memory_of_alloc_is_known_by_address() {
    let agent = agent("alloc");
    let buffer = agent.alloc(1 << 20).expect("memory");
    let inside = dram(buffer.addr() + 8192, 4096);
    let private = PrivateMemory::new(PAGE);
    register(&agent, &[inside, dram(private.addr(), PAGE)]).expect("two regions");
    let shared: Vec<_> = agent.regions().iter().map(|region| region.shared).collect();
    assert_eq!(shared, [true, false]);
    assert_eq!(agent.alloc(0).expect_err("no bytes").code(), "alloc.failed");
    let huge = agent.alloc(1 << 62).expect_err("more than there is");
    assert_eq!(huge.code(), "alloc.failed");
    assert!(huge.to_string().contains("4 EiB"), "{huge}");
}

#[test]
fn a_region_can_be_registered_anew_after_it_was_taken_back() {
    let pair = Pair::new(MemoryClass::Private, 1 << 20);
    run(&pair.left.one_block(Op::Write, &pair.right, 0, 4096, TransferOptions::default()));
    let Pair { left, right } = pair;
    let pool = right.pool.deregister().expect("nobody uses it");
    let desc = pool.desc();
    register(&right.agent, &[desc]).expect("the same memory");
    // The old list is bound to the old region; the new metadata has the new one.
    left.agent.load_remote(&right.agent.metadata()).expect("newer metadata");
    pool.fill(Pattern::POISON);
    left.pool.fill(Pattern::new(1));
    let block = [left.pool.block(0, 1 << 20)];
    let kind = MemoryKind::Dram;
    let far = [pool.block(0, 1 << 20)];
    let transfer = left.agent.transfer_flat(
        Op::Write,
        (kind, &block),
        right.agent.name(),
        (kind, &far),
        TransferOptions::default(),
    );
    let transfer = transfer.expect("a transfer");
    transfer.post().expect("a post");
    expect_done(&transfer);
    pool.verify(Pattern::new(1));
    let ids: Vec<_> = right.agent.regions().iter().map(|region| region.id).collect();
    right.agent.deregister(&ids).expect("nobody uses it");
}

/// Memory whose third and fourth page are served by a userfaultfd.
struct Served {
    memory: PrivateMemory,
    _fd: std::os::fd::OwnedFd,
}

impl Served {
    fn new(len: u64) -> std::io::Result<Self> {
        use std::os::fd::AsRawFd;
        let memory = PrivateMemory::new(2 * len);
        let flags = rustix::mm::UserfaultfdFlags::CLOEXEC;
        // SAFETY: nobody touches the pages that are handed to it.
        let fd = unsafe { rustix::mm::userfaultfd(flags)? };
        let mut api: [u64; 3] = [0xaa, 0, 0];
        let mut range: [u64; 4] = [memory.addr() + 2 * PAGE, 2 * PAGE, 1, 0];
        // UFFDIO_API and UFFDIO_REGISTER.
        for (number, request) in [(0xc018_aa3f_u64, api.as_mut_ptr()), (0xc020_aa00, range.as_mut_ptr())] {
            // SAFETY: the structures have the sizes that these numbers name.
            if unsafe { libc::ioctl(fd.as_raw_fd(), number, request) } != 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(Self { memory, _fd: fd })
    }
}
