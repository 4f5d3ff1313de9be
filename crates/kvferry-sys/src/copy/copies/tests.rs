use proptest::prelude::*;

use super::*;
use crate::copy::copy_fence;
use crate::region::Touch;

/// Memory that copies take place in, beside what it must hold.
struct Arena {
    bytes: Vec<u8>,
    expected: Vec<u8>,
}

impl Arena {
    fn new(len: usize) -> Self {
        let bytes: Vec<u8> = (0..len).map(|index| (index * 31 + index / 251) as u8).collect();
        Self { expected: bytes.clone(), bytes }
    }

    /// Makes the copies (to, from, length) by one list, and by plain copies one after the other; compares all bytes.
    fn check(&mut self, copies: &mut Copies, wanted: &[(usize, usize, usize)]) {
        let start = self.bytes.as_mut_ptr() as u64;
        // SAFETY: the arena outlives the slice, and nobody else touches it before the list has run.
        let whole = unsafe { RegionSlice::new(start, self.bytes.len() as u64, Touch::LoadStore) };
        for &(to, from, len) in wanted {
            let part = |offset: usize| whole.slice(offset as u64, len as u64).unwrap();
            copies.push(part(to), part(from)).unwrap();
            self.expected.copy_within(from..from + len, to);
        }
        assert_eq!(copies.len(), wanted.len());
        copies.run();
        copy_fence();
        assert!(copies.is_empty());
        let wrong = self.bytes.iter().zip(&self.expected).position(|(is, must)| is != must);
        assert_eq!(wrong, None, "the first wrong byte of {wanted:?}");
    }
}

#[test]
fn a_list_without_copies_changes_nothing() {
    let (mut arena, mut copies) = (Arena::new(1000), Copies::new());
    arena.check(&mut copies, &[]);
    arena.check(&mut copies, &[(0, 500, 0), (1000, 0, 0)]);
}

#[test]
fn blocks_that_share_cache_lines_keep_to_themselves() {
    // 100 bytes every 101, from every second line: the lines between two blocks belong to both.
    let (mut arena, mut copies) = (Arena::new(1 << 20), Copies::new());
    for len in [1, 63, 64, 65, 100, 1023, 1024, 1025, 4095, 4096, 4097, 5000] {
        let wanted: Vec<_> = (0..64).map(|n| (n * (len + 1) + 7, (1 << 19) + n * (len + 128), len)).collect();
        arena.check(&mut copies, &wanted);
    }
}

#[test]
fn a_later_copy_sees_what_an_earlier_one_wrote() {
    let (mut arena, mut copies) = (Arena::new(1 << 18), Copies::new());
    for len in [8, 1024, 4096, 6000, 70_000] {
        // Down a chain, and back over the block that was read first; the last one overlaps itself.
        let (a, b, c) = (3, 75_000, 150_001);
        arena.check(&mut copies, &[(b, a, len), (c, b, len), (a, c + 1, len - 1), (c + 5, c, len)]);
    }
}

#[test]
fn one_list_serves_again_and_again() {
    let (mut arena, mut copies) = (Arena::new(10_000), Copies::new());
    arena.check(&mut copies, &[(0, 5000, 100)]);
    arena.check(&mut copies, &[(200, 6000, 100), (300, 7000, 100)]);
    let mut other = [0; 8];
    // SAFETY: the bytes outlive the slice; the list is cleared before it runs.
    let slice = unsafe { RegionSlice::new(other.as_mut_ptr() as u64, 8, Touch::LoadStore) };
    copies.push(slice.slice(0, 4).unwrap(), slice.slice(4, 4).unwrap()).unwrap();
    copies.clear();
    arena.check(&mut copies, &[(0, 9000, 1000)]);
}

#[test]
fn what_cannot_be_copied_is_not_taken_in() {
    let mut bytes = [1u8; 64];
    let addr = bytes.as_mut_ptr() as u64;
    let region = |offset, len, touch| {
        // SAFETY: all of it lies inside `bytes`.
        unsafe { RegionSlice::new(addr + offset, len, touch) }
    };
    let mut copies = Copies::new();
    let loads = region(0, 32, Touch::LoadStore);
    let short = region(32, 31, Touch::LoadStore);
    let calls = region(32, 32, Touch::Syscall);
    assert_eq!(copies.push(loads, short), Err(CopyError::UnequalLengths { dst: 32, src: 31 }));
    assert_eq!(copies.push(loads, calls), Err(CopyError::SyscallOnly));
    assert_eq!(copies.push(calls, loads), Err(CopyError::SyscallOnly));
    assert!(copies.is_empty());
}

const ARENA: usize = 300_000;

/// A copy inside the arena: mostly short or around where the method changes, sometimes long.
fn wanted() -> impl Strategy<Value = (usize, usize, usize)> {
    let len = prop_oneof![0usize..300, 900usize..1100, 3900usize..4400, 0usize..100_000];
    len.prop_flat_map(|len| (0..=ARENA - len, 0..=ARENA - len, Just(len)))
}

proptest! {
    #[test]
    fn it_copies_what_plain_copies_one_by_one_do(wanted in prop::collection::vec(wanted(), 0..40)) {
        Arena::new(ARENA).check(&mut Copies::new(), &wanted);
    }
}

#[test]
fn only_short_lists_go_through_the_cache() {
    let mut bytes = vec![7_u8; 4 * CACHED];
    // SAFETY: the bytes outlive the slice, and nobody else touches them before the list has run.
    let whole = unsafe { RegionSlice::new(bytes.as_mut_ptr() as u64, bytes.len() as u64, Touch::LoadStore) };
    let part = |at: usize, len: usize| whole.slice(at as u64, len as u64).unwrap();
    let mut copies = Copies::new();
    copies.push(part(0, CACHED), part(2 * CACHED, CACHED)).unwrap();
    assert!(copies.is_short());
    copies.push(part(CACHED, 1), part(3 * CACHED, 1)).unwrap();
    assert!(!copies.is_short());
    copies.run();
    assert!(copies.is_empty() && copies.is_short());
}
