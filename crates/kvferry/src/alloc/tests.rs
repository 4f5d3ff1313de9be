use super::*;

fn buffer(len: usize) -> (AllocTable, SharedBuf) {
    let table = AllocTable::default();
    let buffer = table.alloc(len, false).expect("memory");
    (table, buffer)
}

#[test]
fn memory_is_zeroed_and_copied_in_and_out() {
    let (_table, buffer) = buffer(10_000);
    let mut bytes = vec![1; 10_000];
    buffer.copy_out(0, &mut bytes).expect("inside");
    assert_eq!(bytes, vec![0; 10_000]);
    buffer.copy_in(9_997, b"end").expect("inside");
    let clone = buffer.clone();
    let mut end = [0; 4];
    clone.copy_out(9_996, &mut end).expect("inside");
    assert_eq!(&end, b"\0end");
    assert_eq!((clone.addr(), clone.len()), (buffer.addr(), 10_000));
}

#[test]
fn fill_sets_every_byte() {
    let (_table, buffer) = buffer(3 * FILL + 5);
    buffer.fill(0xa5);
    let mut bytes = vec![0; buffer.len()];
    buffer.copy_out(0, &mut bytes).expect("inside");
    assert!(bytes.iter().all(|byte| *byte == 0xa5));
}

#[test]
fn what_does_not_fit_is_refused() {
    let (_table, buffer) = buffer(100);
    let error = buffer.copy_in(98, b"end").expect_err("one too many");
    assert_eq!(
        error.to_string(),
        "3 bytes at offset 98 do not lie inside a buffer of 100 bytes (alloc.bounds)"
    );
    assert!(error.remedy().contains("len()"));
    let mut bytes = [7; 3];
    assert_eq!(buffer.copy_out(usize::MAX, &mut bytes).expect_err("wraps").code(), "alloc.bounds");
    assert_eq!(bytes, [7; 3]);
    buffer.copy_in(100, b"").expect("nothing fits anywhere inside");
}

#[test]
fn impossible_sizes_are_errors() {
    let table = AllocTable::default();
    let error = table.alloc(0, false).expect_err("nothing");
    assert_eq!(error.to_string(), "cannot allocate 0 bytes of shared memory (alloc.failed)");
    let error = table.alloc(usize::MAX, false).expect_err("everything");
    assert!(error.to_string().starts_with("cannot allocate 16.0 EiB of shared memory: "), "{error}");
    assert_eq!(error.code(), "alloc.failed");
    assert!(!error.remedy().is_empty());
}

#[test]
fn ranges_inside_an_allocation_are_found() {
    let table = AllocTable::default();
    let buffers: Vec<SharedBuf> =
        (1..=3).map(|pages| table.alloc(pages * 4096, false).expect("memory")).collect();
    for (index, buffer) in buffers.iter().enumerate() {
        let (addr, len) = (buffer.addr(), buffer.len() as u64);
        let found = table.find(addr + 100, len - 100).expect("inside");
        assert_eq!((found.offset, found.memfd), (100, index as u64 + 1));
        assert!(Arc::ptr_eq(&found.memory, &buffer.memory));
        assert!(table.find(addr, len).is_some());
        assert!(table.find(addr + 100, len - 99).is_none());
        assert!(table.find(addr + 1, u64::MAX).is_none());
        let by_number = table.memory(found.memfd).expect("lives");
        assert!(Arc::ptr_eq(&by_number, &buffer.memory));
    }
    assert!(table.find(4096, 1).is_none());
    assert!(table.memory(4).is_none());
}

#[test]
fn an_allocation_that_is_gone_is_not_found() {
    let (table, buffer) = buffer(4096);
    let (addr, memfd) = (buffer.addr(), buffer.memfd);
    let clone = buffer.clone();
    drop(buffer);
    assert!(table.find(addr, 1).is_some());
    drop(clone);
    assert!(table.find(addr, 1).is_none());
    assert!(table.memory(memfd).is_none());
    let next = table.alloc(4096, false).expect("memory");
    assert_ne!(next.memfd, memfd);
    assert_eq!(table.lock().allocations.len(), 1);
}
