use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use proptest::prelude::*;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{self, MapFlags, MprotectFlags, ProtFlags, UserfaultfdFlags};
use rustix::param::page_size;

use super::*;
use crate::mapping::Mapping as Mapped;
use crate::memfd::SharedMemory;

fn addr(mapped: &Mapped) -> u64 {
    mapped.start().as_ptr() as u64
}

fn protect(mapped: &Mapped, offset: usize, len: usize, flags: MprotectFlags) {
    // SAFETY: the mapping is the test's own and nothing refers into it.
    unsafe { mm::mprotect(mapped.start().as_ptr().add(offset).cast(), len, flags).unwrap() };
}

fn check(addr: u64, len: u64, need_write: bool) -> Result<MapFacts, MapFault> {
    MemoryMap::read().unwrap().check(addr, len, need_write)
}

/// Maps a file anywhere, for as long as the process lives.
fn map_file<Fd: AsFd>(fd: Fd, len: usize, flags: MapFlags) -> u64 {
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: with a null hint the kernel picks a range that nobody uses.
    unsafe { mm::mmap(core::ptr::null_mut(), len, prot, flags, fd, 0).unwrap() as u64 }
}

#[test]
fn private_memory_may_be_touched_by_loads() {
    let mapped = Mapped::private(8 * page_size()).unwrap();
    let facts = check(addr(&mapped), mapped.len() as u64, true).unwrap();
    assert_eq!(facts, MapFacts { backing: Backing::Anonymous, touch: Touch::LoadStore, path: None });
    let heap: Box<[u8]> = vec![0; 100].into();
    assert_eq!(check(heap.as_ptr() as u64, 100, true).unwrap().backing, Backing::Anonymous);
    let local = 0u8;
    assert_eq!(check((&raw const local) as u64, 1, true).unwrap().touch, Touch::LoadStore);
}

#[test]
fn protection_is_found_where_it_begins() {
    let page = page_size();
    let mapped = Mapped::private(6 * page).unwrap();
    protect(&mapped, 2 * page, page, MprotectFlags::READ);
    protect(&mapped, 4 * page, page, MprotectFlags::empty());
    let (start, page) = (addr(&mapped), page as u64);
    // The parts are separate mappings now, and joined where they agree.
    assert!(check(start, 4 * page, false).is_ok());
    assert!(check(start, 2 * page, true).is_ok());
    assert_eq!(check(start, 3 * page, true), Err(MapFault::NotWritable { from: start + 2 * page }));
    assert_eq!(
        check(start + 2 * page + 7, 1, true),
        Err(MapFault::NotWritable { from: start + 2 * page + 7 })
    );
    assert_eq!(check(start, 5 * page, false), Err(MapFault::NotReadable { from: start + 4 * page }));
    assert_eq!(check(start, 4 * page + 1, false), Err(MapFault::NotReadable { from: start + 4 * page }));
    assert!(check(start + 5 * page, page, true).is_ok());
}

#[test]
fn a_hole_is_found_where_it_begins() {
    let page = page_size();
    let mapped = Mapped::private(5 * page).unwrap();
    // SAFETY: the mapping is the test's own; dropping it later unmaps the hole a second time, which is allowed.
    unsafe { mm::munmap(mapped.start().as_ptr().add(2 * page).cast(), page).unwrap() };
    let (start, page) = (addr(&mapped), page as u64);
    let map = MemoryMap::read().unwrap();
    let hole = Err(MapFault::Unmapped { from: start + 2 * page });
    assert_eq!(map.check(start, 5 * page, true), hole);
    assert_eq!(map.check(start + page, page + 1, false), hole);
    assert_eq!(map.check(start + 2 * page, 1, false), hole);
    assert!(map.check(start + page, page, true).is_ok());
    assert_eq!(
        map.check(start + 3 * page - 1, 2, true),
        Err(MapFault::Unmapped { from: start + 3 * page - 1 })
    );
    assert!(map.check(start + 3 * page, 2 * page, true).is_ok());
    assert_eq!(map.probe_readable(start, 5 * page), Err(MapFault::Unmapped { from: start + 2 * page }));
}

#[test]
fn the_ends_of_the_address_space_are_not_mapped() {
    let map = MemoryMap::read().unwrap();
    assert_eq!(map.check(0, 1, false), Err(MapFault::Unmapped { from: 0 }));
    assert_eq!(map.check(0, u64::MAX, false), Err(MapFault::Unmapped { from: 0 }));
    assert_eq!(map.check(u64::MAX, 1, false), Err(MapFault::Unmapped { from: u64::MAX }));
    assert_eq!(map.check(1 << 63, 4096, false), Err(MapFault::Unmapped { from: 1 << 63 }));
    let mapped = Mapped::private(page_size()).unwrap();
    let far = MemoryMap::read().unwrap().check(addr(&mapped), u64::MAX, false);
    assert!(matches!(
        far,
        Err(MapFault::Unmapped { .. } | MapFault::NotReadable { .. } | MapFault::Special { .. })
    ));
    assert!(check(addr(&mapped), 0, true).is_ok(), "an empty range answers for its first byte");
}

#[test]
fn a_memfd_may_be_touched_by_loads_only_if_sealed_and_inside_its_size() {
    let page = page_size();
    let sealed = SharedMemory::create("kvferry-maps-test", 3 * page as u64).unwrap();
    let facts = check(sealed.addr(), sealed.len(), true).unwrap();
    assert_eq!((facts.backing, facts.touch), (Backing::SealedMemfd, Touch::LoadStore));
    assert_eq!(facts.path.as_deref(), Some("/memfd:kvferry-maps-test (deleted)"));

    // Mapped past its end: loads there would raise SIGBUS.
    let long = map_file(sealed.fd(), 5 * page, MapFlags::SHARED);
    let page = page as u64;
    assert_eq!(check(long, 3 * page, true).unwrap().touch, Touch::LoadStore);
    assert_eq!(check(long, 3 * page + 1, true).unwrap().touch, Touch::Syscall);
    assert_eq!(check(long + 3 * page, 1, true).unwrap().backing, Backing::File);

    let open = memfd_create("kvferry-open-test", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&open, page).unwrap();
    let facts = check(map_file(&open, page as usize, MapFlags::SHARED), page, true).unwrap();
    assert_eq!((facts.backing, facts.touch), (Backing::File, Touch::Syscall));
}

#[test]
fn a_memfd_that_is_not_open_any_more_is_not_known_to_be_sealed() {
    let sealed = SharedMemory::create("kvferry-closed-test", page_size() as u64).unwrap();
    let at = map_file(sealed.fd(), page_size(), MapFlags::SHARED);
    drop(sealed);
    assert_eq!(check(at, 1, true).unwrap().touch, Touch::Syscall);
}

#[test]
fn a_file_is_touched_by_system_calls_only() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(page_size() as u64).unwrap();
    for flags in [MapFlags::SHARED, MapFlags::PRIVATE] {
        let facts = check(map_file(file.as_file(), page_size(), flags), 1, true).unwrap();
        assert_eq!((facts.backing, facts.touch), (Backing::File, Touch::Syscall));
        assert_eq!(facts.path.as_deref(), file.path().to_str());
    }
}

#[test]
fn dev_zero_is_anonymous_memory() {
    let zero = File::options().read(true).write(true).open("/dev/zero").unwrap();
    let private = check(map_file(&zero, page_size(), MapFlags::PRIVATE), 1, true).unwrap();
    assert_eq!((private.backing, private.touch), (Backing::Anonymous, Touch::Syscall));
    let shared = check(map_file(&zero, page_size(), MapFlags::SHARED), 1, true).unwrap();
    assert_eq!((shared.backing, shared.touch), (Backing::SharedAnonymous, Touch::Syscall));
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: with a null hint the kernel picks a range that nobody uses.
    let anonymous =
        unsafe { mm::mmap_anonymous(core::ptr::null_mut(), page_size(), prot, MapFlags::SHARED).unwrap() };
    let shared = check(anonymous as u64, 1, true).unwrap();
    assert_eq!((shared.backing, shared.touch), (Backing::SharedAnonymous, Touch::Syscall));
}

#[test]
fn the_kernels_own_pages_are_special() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.ends_with("[vvar]")).expect("the kernel maps its clock");
    let start = u64::from_str_radix(line.split_once('-').unwrap().0, 16).unwrap();
    let fault = check(start, 1, false).unwrap_err();
    let MapFault::Special { from, what, path } = fault else { panic!("{fault:?}") };
    assert_eq!((from, path.as_deref()), (start, Some("[vvar]")));
    assert!(matches!(what, Special::Io | Special::PfnMap));
}

/// Registers a range with userfaultfd; None where the kernel does not let us.
fn userfault(start: u64, len: u64) -> Option<OwnedFd> {
    #[repr(C)]
    struct Api {
        api: u64,
        features: u64,
        ioctls: u64,
    }
    #[repr(C)]
    struct Register {
        start: u64,
        len: u64,
        mode: u64,
        ioctls: u64,
    }
    const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
    const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
    use std::os::fd::AsRawFd;
    // SAFETY: the structs are the kernel's; the range is the caller's and nothing touches it.
    unsafe {
        let fd = mm::userfaultfd(UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK).ok()?;
        let mut api = Api { api: 0xaa, features: 0, ioctls: 0 };
        let mut register = Register { start, len, mode: 1, ioctls: 0 };
        (libc::ioctl(fd.as_raw_fd(), UFFDIO_API, &raw mut api) == 0
            && libc::ioctl(fd.as_raw_fd(), UFFDIO_REGISTER, &raw mut register) == 0)
            .then_some(fd)
    }
}

#[test]
fn memory_under_userfaultfd_is_special() {
    let page = page_size();
    let mapped = Mapped::private(4 * page).unwrap();
    let (start, page) = (addr(&mapped), page as u64);
    let Some(fd) = userfault(start + page, 2 * page) else {
        println!("skipped: this kernel or user has no userfaultfd");
        return;
    };
    let special = Err(MapFault::Special { from: start + page, what: Special::Userfaultfd, path: None });
    assert_eq!(check(start, 4 * page, true), special);
    assert!(check(start, page, true).is_ok());
    assert!(check(start + 3 * page, page, true).is_ok());
    drop(fd);
    assert!(check(start, 4 * page, true).is_ok());
}

#[test]
fn a_readable_mapping_that_cannot_be_read_is_found_by_probing() {
    let (page, file) = (page_size(), tempfile::tempfile().unwrap());
    // A file's mapping past its end is listed as readable.
    file.set_len(1).unwrap();
    let at = map_file(&file, 2 * page, MapFlags::SHARED);
    let map = MemoryMap::read().unwrap();
    assert!(map.check(at, 2 * page as u64, true).is_ok());
    assert_eq!(map.probe_readable(at, 2 * page as u64), Ok(()), "one byte a mapping, and the first is there");
    let past = at + page as u64;
    assert_eq!(map.probe_readable(past, 1), Err(MapFault::NotReadable { from: past }));
}

#[test]
fn probing_writes_nothing_and_brings_no_page_in() {
    let mapped = Mapped::private(64 * page_size()).unwrap();
    let map = MemoryMap::read().unwrap();
    assert_eq!(map.probe_readable(addr(&mapped), mapped.len() as u64), Ok(()));
    let mut resident = vec![0u8; 64];
    // SAFETY: one byte a page, and as many pages as the vector has bytes.
    let rc = unsafe { libc::mincore(mapped.start().as_ptr().cast(), mapped.len(), resident.as_mut_ptr()) };
    assert_eq!(rc, 0);
    assert!(resident.iter().filter(|&&page| page & 1 != 0).count() <= 1);
}

#[test]
fn lines_are_read_as_the_kernel_writes_them() {
    let parse = |line: &str| Mapping::parse(line.as_bytes());
    let line =
        "7f8a10000000-7f8a10021000 rw-p 0000a000 fe:01 1234567                    /a b/lib c.so (deleted)";
    let expected = Mapping {
        start: 0x7f8a_1000_0000,
        last: 0x7f8a_1002_0fff,
        readable: true,
        writable: true,
        shared: false,
        offset: 0xa000,
        file: FileId { major: 0xfe, minor: 1, inode: 1_234_567 },
        path: Some("/a b/lib c.so (deleted)".into()),
    };
    assert_eq!(parse(line), Some(expected));
    assert_eq!(parse("7f8a10000000-7f8a10021000 r--s 00000000 00:01 9 ").unwrap().path, None);
    let last =
        parse("ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]").unwrap();
    assert!(!last.readable && last.last == 0xffff_ffff_ff60_0fff);
    for nonsense in
        ["", "x", "1-2", "1-0 r--p 0 0:0 0", "Rss:    12 kB", "VmFlags: rd wr", "zz-zz rw-p 0 0:0 0"]
    {
        assert_eq!(parse(nonsense), None, "{nonsense}");
    }
}

#[test]
fn flags_are_read_as_the_kernel_writes_them() {
    let text = b"1000-2000 rw-p 00000000 00:00 0 \nSize:   4 kB\nVmFlags: rd wr mr mw me ac sd \n\
        2000-3000 rw-s 00000000 00:05 3      /dev/something\nRss:  0 kB\nVmFlags: rd wr sh io pf \n\
        3000-4000 rw-p 00000000 00:00 0 \nVmFlags: rd wr um \n4000-5000 r--p 00000000 00:00 0 [vvar]\nVmFlags: rd pf\n";
    let expected = [(0x2000, Special::Io), (0x3000, Special::Userfaultfd), (0x4000, Special::PfnMap)];
    assert_eq!(smaps::parse(&text[..]), expected);
    assert_eq!(smaps::parse(&b"VmFlags: io\n\xff\xff\n"[..]), []);
}

#[test]
fn only_devices_and_drivers_mappings_are_asked_for_their_flags() {
    let unusual = |path: &str| {
        Mapping::parse(format!("1000-2000 rw-p 0 0:0 0 {path}").as_bytes()).unwrap().is_unusual()
    };
    for path in ["/dev/nvidia0", "/dev/mem", "anon_inode:[perf_event]", "[vvar]", "/sys/bus/pci/resource0"] {
        assert!(unusual(path), "{path}");
    }
    for path in
        ["", "/dev/zero", "/dev/shm/pool", "/memfd:pool (deleted)", "[heap]", "[stack]", "/usr/lib/libc.so"]
    {
        assert!(!unusual(path), "{path}");
    }
}

proptest! {
    /// Any line, and any range over whatever is mapped: an answer, and no panic.
    #[test]
    fn nothing_panics(line in prop::collection::vec(any::<u8>(), 0..120), from: u64, len: u64, need_write: bool) {
        let _ = Mapping::parse(&line);
        let _ = smaps::parse(&line[..]);
        let map = MemoryMap::read().unwrap();
        if let Err(MapFault::Unmapped { from: found }) = map.check(from, len, need_write) {
            prop_assert!(found >= from);
        }
    }

    /// A made-up map against one flag a page.
    #[test]
    fn the_first_fault_is_the_first_bad_page(
        pages in prop::collection::vec(0u8..4, 1..40), from in 0u64..40, len in 1u64..40, need_write: bool,
    ) {
        const PAGE: u64 = 4096;
        // 0: not mapped, 1: not readable, 2: readable, 3: writable.
        let kind = |page: u64| pages.get(page as usize).copied().unwrap_or(0);
        let mappings = (0..40).filter(|&page| kind(page) > 0).map(|page| {
            let rights = ["", "---p", "r--p", "rw-p"][kind(page) as usize];
            let line = format!("{:x}-{:x} {rights} 00000000 00:00 0 ", page * PAGE, (page + 1) * PAGE);
            Mapping::parse(line.as_bytes()).unwrap()
        });
        let map = MemoryMap {
            mappings: mappings.collect(),
            descriptors: Descriptors::default().into(),
            specials: OnceLock::new(),
        };
        let bad = (from..from + len).find(|&page| kind(page) < if need_write { 3 } else { 2 });
        let expected = bad.map(|page| {
            let from = page * PAGE;
            match kind(page) {
                0 => MapFault::Unmapped { from },
                1 => MapFault::NotReadable { from },
                _ => MapFault::NotWritable { from },
            }
        });
        prop_assert_eq!(map.check(from * PAGE, len * PAGE, need_write).err(), expected);
    }
}
