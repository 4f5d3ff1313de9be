use std::os::unix::net::UnixStream;

use super::*;
use crate::region::Touch;

fn slice(bytes: &mut [u8]) -> RegionSlice {
    // SAFETY: the caller's bytes are borrowed mutably for as long as the test uses the slice.
    unsafe { RegionSlice::new(bytes.as_mut_ptr() as u64, bytes.len() as u64, Touch::Syscall) }
}

#[test]
fn scattered_bytes_arrive_in_order_and_nowhere_else() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut source: Vec<u8> = (0..100).collect();
    let whole = slice(&mut source);
    let parts = [whole.slice(10, 5).unwrap(), whole.slice(50, 20).unwrap()];
    let mut gather = Gather::new();
    assert_eq!(gather.send(&ours, b"head", parts, b"tail").unwrap(), 33);

    let mut head = [0; 4];
    let mut target = vec![0xee; 64];
    let heads = slice(&mut head);
    let place = slice(&mut target);
    let into = [heads, place.slice(1, 20).unwrap(), place.slice(40, 5).unwrap()];
    let mut tail = [0; 9];
    assert_eq!(gather.receive(&theirs, into, &mut tail).unwrap(), 33);
    assert_eq!((&head, &tail), (b"head", b"tail\0\0\0\0\0"));
    let expected: Vec<u8> = (10..15).chain(50..70).collect();
    assert_eq!(&target[1..21], &expected[..20]);
    assert_eq!(&target[40..45], &expected[20..]);
    assert!(target[21..40].iter().chain(&target[45..]).chain(&target[..1]).all(|b| *b == 0xee));
}

#[test]
fn memory_that_is_not_there_is_an_error() {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    // SAFETY: nothing is mapped there; the kernel answers.
    let nothing = unsafe { RegionSlice::new(4096, 4096, Touch::Syscall) };
    let error = Gather::new().send(&ours, b"", [nothing], b"").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
}

#[test]
fn an_empty_socket_and_a_full_one_would_block_and_a_closed_one_ends() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut bytes = vec![0; 1 << 16];
    let whole = slice(&mut bytes);
    let mut gather = Gather::new();
    assert_eq!(gather.receive(&ours, [whole], &mut []).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    while gather.send(&ours, b"", [whole], b"").is_ok() {}
    assert_eq!(gather.send(&ours, b"", [whole], b"").unwrap_err().kind(), io::ErrorKind::WouldBlock);
    drop(theirs);
    assert_eq!(gather.send(&ours, b"", [whole], b"").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
}

#[test]
fn what_follows_waits_for_the_slices_that_one_call_cannot_take() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut bytes = vec![7; MAX_GATHER + 1];
    let all = slice(&mut bytes);
    let each = |_| (0..all.len()).map(|i| all.slice(i, 1).unwrap());
    let mut gather = Gather::new();
    assert_eq!(gather.send(&ours, b"", each(()), b"tail").unwrap(), MAX_GATHER);
    assert_eq!(gather.send(&ours, b"", each(()).take(MAX_GATHER), b"tail").unwrap(), MAX_GATHER + 4);
    let mut tail = [0; 4];
    assert_eq!(gather.receive(&theirs, each(()), &mut tail).unwrap(), MAX_GATHER);
    assert_eq!(tail, [0; 4], "filled before a slice");
    assert_eq!(gather.receive(&theirs, each(()).take(MAX_GATHER), &mut tail).unwrap(), MAX_GATHER + 4);
    assert_eq!(&tail, b"tail");
}
