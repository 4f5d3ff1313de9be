use proptest::prelude::*;

use super::*;

fn region(addr: u64, len: u64) -> RegionSlice {
    // SAFETY: never handed to a copy.
    unsafe { RegionSlice::new(addr, len, Touch::Syscall) }
}

#[test]
fn a_slice_keeps_how_it_may_be_touched() {
    // SAFETY: never handed to a copy.
    let whole = unsafe { RegionSlice::new(1 << 63, 100, Touch::LoadStore) };
    let part = whole.slice(10, 90).unwrap();
    assert_eq!((part.addr(), part.len(), part.touch()), ((1 << 63) + 10, 90, Touch::LoadStore));
    assert!(whole.slice(100, 0).unwrap().is_empty());
    assert_eq!(whole.slice(10, 91), None);
    assert_eq!(whole.slice(u64::MAX, 2), None);
}

proptest! {
    #[test]
    fn a_slice_lies_inside(addr in 0..u64::MAX / 2, len in 0u64..5000, offset: u64, part: u64) {
        for (offset, part) in [(offset, part), (offset % 6000, part % 6000)] {
            let inside = u128::from(offset) + u128::from(part) <= u128::from(len);
            let slice = region(addr, len).slice(offset, part);
            prop_assert_eq!(slice.is_some(), inside);
            if let Some(slice) = slice {
                prop_assert_eq!((slice.addr(), slice.len()), (addr + offset, part));
            }
        }
    }
}
