use proptest::prelude::*;

use super::*;

fn region(addr: u64, len: usize, touch: Touch) -> RegionSlice {
    // SAFETY: the callers point it to their own vectors, which outlive it.
    unsafe { RegionSlice::new(addr, len as u64, touch) }
}

/// Copies a part of one vector into another and compares all of the latter with what it must hold.
fn check(len: usize, to: usize, from: usize) {
    let source: Vec<u8> = (0..from + len + 70).map(|index| (index * 31 + index / 251) as u8).collect();
    let mut target = vec![0xa5u8; to + len + 70];
    let mut expected = target.clone();
    expected[to..to + len].copy_from_slice(&source[from..from + len]);
    let src = region(source.as_ptr() as u64 + from as u64, len, Touch::LoadStore);
    let dst = region(target.as_mut_ptr() as u64 + to as u64, len, Touch::LoadStore);
    copy(dst, src).unwrap();
    copy_fence();
    // Not assert_eq, which would print all of it.
    assert!(target == expected, "{len} bytes from offset {from} to offset {to}");
}

#[test]
fn every_alignment_around_the_lengths_where_the_method_changes() {
    for len in [0, 1, 63, 64, 65, 4095, 4096, 4097, 4351, 65_535, 65_536, 65_600] {
        for to in (0..64).step_by(if len > 5000 { 7 } else { 3 }) {
            for from in [0, 1, 8, 31, 33, 63] {
                check(len, to, from);
            }
        }
    }
}

#[test]
fn every_length_of_a_tail() {
    for tail in 0..300 {
        check(4096 + tail, 5, 3);
        check(65_536 + tail, 5, 3);
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn every_method_that_this_processor_has() {
    let source: Vec<u8> = (0..20_000u32).map(|index| (index * 7 + index / 256) as u8).collect();
    type Method = unsafe fn(*mut u8, *const u8, usize);
    let methods: [(bool, Method); 2] = [
        (is_x86_feature_detected!("avx512f"), |to, from, len| {
            // SAFETY: only called if the processor has it; the ranges are the caller's.
            unsafe { streaming::avx512(to, from, len) }
        }),
        (is_x86_feature_detected!("avx2"), |to, from, len| {
            // SAFETY: only called if the processor has it; the ranges are the caller's.
            unsafe { streaming::avx2(to, from, len) }
        }),
    ];
    for (_, method) in methods.into_iter().filter(|(there, _)| *there) {
        for len in (0..700).chain([4096, 9999]) {
            for (to, from) in [(0, 0), (1, 0), (63, 5), (32, 64)] {
                let mut target = vec![0u8; len + 128];
                // SAFETY: both ranges lie inside the vectors.
                unsafe { method(target.as_mut_ptr().add(to), source.as_ptr().add(from), len) };
                copy_fence();
                assert!(target[to..to + len] == source[from..from + len], "{len} bytes");
                assert!(target[..to].iter().chain(&target[to + len..]).all(|&byte| byte == 0));
            }
        }
    }
}

#[test]
fn overlapping_ranges_are_copied_as_if_through_a_buffer() {
    for (to, from) in [(0, 100), (100, 0), (50, 50)] {
        let mut bytes: Vec<u8> = (0..20_000u32).map(|index| (index % 253) as u8).collect();
        let mut expected = bytes.clone();
        expected.copy_within(from..from + 15_000, to);
        let start = bytes.as_mut_ptr() as u64;
        let part = |offset: usize| region(start + offset as u64, 15_000, Touch::LoadStore);
        copy(part(to), part(from)).unwrap();
        copy_fence();
        assert!(bytes == expected, "from {from} to {to}");
    }
}

#[test]
fn unequal_lengths_and_memory_for_system_calls_are_refused() {
    let mut bytes = [0u8; 64];
    let addr = bytes.as_mut_ptr() as u64;
    let loads = region(addr, 32, Touch::LoadStore);
    let calls = region(addr + 32, 32, Touch::Syscall);
    let short = region(addr + 32, 31, Touch::LoadStore);
    assert_eq!(copy(loads, short), Err(CopyError::UnequalLengths { dst: 32, src: 31 }));
    assert_eq!(copy(loads, calls), Err(CopyError::SyscallOnly));
    assert_eq!(copy(calls, loads), Err(CopyError::SyscallOnly));
}

proptest! {
    #[test]
    fn it_copies_what_a_slice_copies(len in 0usize..200_000, to in 0usize..130, from in 0usize..130) {
        check(len, to, from);
    }
}
