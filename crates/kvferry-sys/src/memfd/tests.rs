use std::fs::File;
use std::os::fd::AsFd;

use proptest::prelude::*;

use super::*;
use crate::copy::{copy, copy_fence};

fn unsealed(len: u64) -> OwnedFd {
    let fd = fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    fs::ftruncate(&fd, len).unwrap();
    fd
}

fn clone_of(memory: &SharedMemory) -> OwnedFd {
    memory.fd().try_clone_to_owned().unwrap()
}

#[test]
fn two_mappings_show_the_same_bytes() {
    let ours = SharedMemory::create("test", 10_000).unwrap();
    let theirs = SharedMemory::import(clone_of(&ours), 10_000).unwrap();
    assert_ne!(ours.addr(), theirs.addr());
    ours.copy_in(5_000, b"kv cache").unwrap();
    let mut read = [0; 8];
    theirs.copy_out(5_000, &mut read).unwrap();
    assert_eq!(&read, b"kv cache");

    copy(ours.slice(0, 8).unwrap(), theirs.slice(5_000, 8).unwrap()).unwrap();
    copy_fence();
    theirs.copy_out(0, &mut read).unwrap();
    assert_eq!(&read, b"kv cache");
}

#[test]
fn its_size_can_change_no_more() {
    let memory = SharedMemory::create("test", 8_192).unwrap();
    assert_eq!(fs::ftruncate(memory.fd(), 0), Err(Errno::PERM));
    assert_eq!(fs::ftruncate(memory.fd(), 1 << 20), Err(Errno::PERM));
    assert_eq!(fs::fcntl_add_seals(memory.fd(), SealFlags::WRITE), Err(Errno::PERM), "nor can its seals");
}

#[test]
fn what_a_peer_should_not_have_sent_is_refused() {
    assert!(matches!(SharedMemory::import(unsealed(4096), 4096), Err(ImportError::NotSealed)));

    let growable = unsealed(4096);
    fs::fcntl_add_seals(&growable, SealFlags::SHRINK | SealFlags::SEAL).unwrap();
    assert!(matches!(SharedMemory::import(growable, 4096), Err(ImportError::NotSealed)));

    let memory = SharedMemory::create("test", 4096).unwrap();
    let wrong = SharedMemory::import(clone_of(&memory), 8192);
    assert!(matches!(wrong, Err(ImportError::WrongSize { expected: 8192, actual: 4096 })));

    let empty = unsealed(0);
    fs::fcntl_add_seals(&empty, SIZE_SEALS).unwrap();
    assert!(matches!(SharedMemory::import(empty, 0), Err(ImportError::WrongSize { .. })));

    let sealed_against_writing = unsealed(4096);
    fs::fcntl_add_seals(&sealed_against_writing, SIZE_SEALS | SealFlags::WRITE).unwrap();
    assert!(matches!(
        SharedMemory::import(sealed_against_writing, 4096),
        Err(ImportError::Map { len: 4096, .. })
    ));
}

#[test]
fn what_is_no_memfd_is_refused() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(4096).unwrap();
    let (pipe, _other_end) = rustix::pipe::pipe().unwrap();
    let device = File::open("/dev/zero").unwrap();
    for fd in [file.into(), pipe, device.into()] {
        let refused = SharedMemory::import(fd, 4096).unwrap_err();
        assert!(matches!(refused, ImportError::NotMemfd | ImportError::NotSealed), "{refused}");
    }
    // Huge pages raise SIGBUS when there are none left, whatever the seals. Not every kernel has them.
    let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB;
    if let Ok(huge) = fs::memfd_create("test", flags) {
        fs::fcntl_add_seals(&huge, SIZE_SEALS).unwrap();
        assert!(matches!(SharedMemory::import(huge, 0), Err(ImportError::NotMemfd)));
    }
}

#[test]
fn nonsense_sizes_and_names_are_errors() {
    assert_eq!(SharedMemory::create("test", 0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert!(SharedMemory::create("test", u64::MAX).is_err());
    assert!(SharedMemory::create("test", 1 << 62).is_err());
    assert!(SharedMemory::create(&"x".repeat(300), 1).is_err());
    assert!(SharedMemory::create("a\0b", 1).is_err());
}

#[test]
fn populating_and_collapsing_change_no_byte() {
    let memory = SharedMemory::create("test", 4 << 20).unwrap();
    let bytes: Vec<u8> = (0..4 << 20).map(|index: u32| (index % 251) as u8).collect();
    memory.copy_in(0, &bytes).unwrap();
    memory.populate().unwrap();
    // Not every kernel can.
    let _ = memory.collapse();
    let mut read = vec![0; bytes.len()];
    memory.copy_out(0, &mut read).unwrap();
    assert!(read == bytes);
}

#[test]
fn dropping_unmaps() {
    let memory = SharedMemory::create("kvferry-drop-test", 4096).unwrap();
    let is_mapped = || std::fs::read_to_string("/proc/self/maps").unwrap().contains("kvferry-drop-test");
    assert!(is_mapped());
    let fd = memory.into_fd();
    assert!(!is_mapped());
    assert_eq!(sealed_size(fd.as_fd()).unwrap(), 4096);
}

proptest! {
    #[test]
    fn ranges_are_checked(offset: u64, len in 0usize..9_000, small in 0u64..9_000) {
        let memory = SharedMemory::create("test", 5_000).unwrap();
        let mut bytes = vec![1; len];
        for offset in [offset, small] {
            let inside = u128::from(offset) + len as u128 <= 5_000;
            let out = OutOfBounds { offset, len: len as u64, size: 5_000 };
            let expected = if inside { Ok(()) } else { Err(out) };
            prop_assert_eq!(memory.copy_in(offset, &bytes), expected);
            prop_assert_eq!(memory.copy_out(offset, &mut bytes), expected);
            prop_assert_eq!(memory.slice(offset, len as u64).is_some(), inside);
        }
    }
}
