//! Copies with streaming stores, on x86-64.
//!
//! Measured on cold memory, one core: the wider registers win on blocks up to some tens of KiB, where the set-up
//! counts; on longer ones prefetching does.

use core::arch::x86_64::{
    __m256i, __m512i, _MM_HINT_NTA, _mm_prefetch, _mm256_loadu_si256, _mm256_stream_si256,
    _mm512_loadu_si512, _mm512_stream_si512,
};

/// Shorter blocks are copied through the cache.
pub(super) const FROM_LEN: usize = 4 << 10;

/// From here on prefetching pays.
pub(super) const PREFETCH_FROM_LEN: usize = 64 << 10;

/// How far ahead of the copy is prefetched.
const AHEAD: usize = 1 << 10;

const LINE: usize = 64;

/// Copies by 64-byte registers.
///
/// # Safety
/// The processor has AVX-512F; `from` is readable and `to` writable for `len` bytes, and they do not overlap.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn avx512(to: *mut u8, from: *const u8, len: usize) {
    const STEP: usize = 4 * LINE;
    // SAFETY: every access is at an offset below `len`, and streaming stores are at multiples of 64 bytes: the head
    // brings the destination there and all steps are multiples of a line.
    unsafe {
        let mut at = copy_head(to, from, len);
        while len - at >= STEP {
            let (source, target) = (from.add(at).cast::<__m512i>(), to.add(at).cast::<__m512i>());
            let a = _mm512_loadu_si512(source);
            let b = _mm512_loadu_si512(source.add(1));
            let c = _mm512_loadu_si512(source.add(2));
            let d = _mm512_loadu_si512(source.add(3));
            _mm512_stream_si512(target, a);
            _mm512_stream_si512(target.add(1), b);
            _mm512_stream_si512(target.add(2), c);
            _mm512_stream_si512(target.add(3), d);
            at += STEP;
        }
        copy_tail(to, from, len, at);
    }
}

/// Copies by 32-byte registers, prefetching the source.
///
/// # Safety
/// The processor has AVX2; `from` is readable and `to` writable for `len` bytes, and they do not overlap.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn avx2(to: *mut u8, from: *const u8, len: usize) {
    const STEP: usize = 2 * LINE;
    // SAFETY: every load and store is at an offset below `len`, and streaming stores are at multiples of 32 bytes:
    // the head brings the destination to a multiple of 64 and all steps are multiples of a line. A prefetch may point
    // anywhere.
    unsafe {
        let mut at = copy_head(to, from, len);
        while len - at >= STEP {
            let (source, target) = (from.add(at).cast::<__m256i>(), to.add(at).cast::<__m256i>());
            _mm_prefetch::<_MM_HINT_NTA>(from.wrapping_add(at + AHEAD).cast());
            _mm_prefetch::<_MM_HINT_NTA>(from.wrapping_add(at + AHEAD + LINE).cast());
            let a = _mm256_loadu_si256(source);
            let b = _mm256_loadu_si256(source.add(1));
            let c = _mm256_loadu_si256(source.add(2));
            let d = _mm256_loadu_si256(source.add(3));
            _mm256_stream_si256(target, a);
            _mm256_stream_si256(target.add(1), b);
            _mm256_stream_si256(target.add(2), c);
            _mm256_stream_si256(target.add(3), d);
            at += STEP;
        }
        copy_tail(to, from, len, at);
    }
}

/// Copies up to the destination's next line; returns how many bytes that was.
///
/// # Safety
/// `from` is readable and `to` writable for `len` bytes, and they do not overlap.
unsafe fn copy_head(to: *mut u8, from: *const u8, len: usize) -> usize {
    let head = (to.addr().wrapping_neg() % LINE).min(len);
    // SAFETY: no more than `len` bytes.
    unsafe { core::ptr::copy_nonoverlapping(from, to, head) };
    head
}

/// Copies what is left from `at` on.
///
/// # Safety
/// `from` is readable and `to` writable for `len` bytes, they do not overlap, and `at` is at most `len`.
unsafe fn copy_tail(to: *mut u8, from: *const u8, len: usize, at: usize) {
    // SAFETY: from `at` to `len`.
    unsafe { core::ptr::copy_nonoverlapping(from.add(at), to.add(at), len - at) };
}
