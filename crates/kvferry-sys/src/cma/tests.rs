use proptest::prelude::*;
use rustix::mm::{MprotectFlags, mprotect};
use rustix::param::page_size;

use super::*;
use crate::mapping::Mapping;
use crate::region::Touch;
use crate::testing::{Peer, hear, role, tell};

/// Bytes that the second process holds.
const LEN: usize = 3 << 20;

fn byte(index: usize) -> u8 {
    (index * 17 + index / 255) as u8
}

fn local(bytes: &mut [u8]) -> RegionSlice {
    // SAFETY: the callers keep the bytes while they copy.
    unsafe { RegionSlice::new(bytes.as_mut_ptr() as u64, bytes.len() as u64, Touch::Syscall) }
}

fn remote(addr: u64, len: usize) -> RemoteSlice {
    RemoteSlice { addr, len: len as u64 }
}

/// The second process: tells where its bytes are, and answers questions about them.
fn hold_bytes() -> ! {
    let bytes = Mapping::private(LEN).unwrap();
    let start = bytes.start().as_ptr();
    for index in 0..LEN {
        // SAFETY: inside the mapping, which the other process does not touch yet.
        unsafe { start.add(index).write(byte(index)) };
    }
    tell(start as u64);
    loop {
        let question = hear();
        let (what, number) = question.split_once(' ').unwrap();
        let number: usize = number.parse().unwrap();
        // SAFETY: the first process asks about offsets inside the mapping, and does not copy at the same time.
        unsafe {
            match what {
                "byte" => tell(start.add(number).read()),
                "protect" => tell(mprotect(start.cast(), number, MprotectFlags::empty()).is_ok()),
                "read-only" => tell(mprotect(start.cast(), number, MprotectFlags::READ).is_ok()),
                "unmap" => tell(rustix::mm::munmap(start.cast(), number).is_ok()),
                _ => unreachable!(),
            }
        }
    }
}

/// A second process that holds bytes, and where.
fn holder(test: &str) -> (Peer, u64) {
    if role().is_some() {
        hold_bytes();
    }
    let mut peer = Peer::start(&format!("cma::tests::{test}"), "holder");
    let addr = peer.hear_number();
    (peer, addr)
}

fn ask(peer: &mut Peer, what: &str, number: usize) -> String {
    peer.tell(format_args!("{what} {number}"));
    peer.hear()
}

#[test]
fn reads_and_writes_scattered_blocks_of_another_process() {
    let (mut peer, addr) = holder("reads_and_writes_scattered_blocks_of_another_process");
    let mut ours = vec![0u8; MAX_VECTORS * 100];
    let mut vectors = Vectors::new();
    let offset = |index: usize| (index * 7919) % (LEN - 100);
    for (index, block) in ours.chunks_mut(100).enumerate() {
        assert!(vectors.push(local(block), remote(addr + offset(index) as u64, 100)));
    }
    assert!(vectors.is_full());
    assert!(!vectors.push(local(&mut [0]), remote(addr, 1)), "the list is full");
    assert_eq!(vectors.transfer(Direction::Read, peer.pid()), Ok(ours.len() as u64));
    for (index, block) in ours.chunks(100).enumerate() {
        assert!(
            block.iter().enumerate().all(|(at, &read)| read == byte(offset(index) + at)),
            "block {index}"
        );
    }

    let mut ours = [1u8, 2, 3];
    vectors.clear();
    assert!(vectors.is_empty());
    assert!(vectors.push(local(&mut ours), remote(addr + 500, 3)));
    assert_eq!(vectors.transfer(Direction::Write, peer.pid()), Ok(3));
    let around: Vec<String> = (499..504).map(|offset| ask(&mut peer, "byte", offset)).collect();
    assert_eq!(around, [byte(499).to_string(), "1".into(), "2".into(), "3".into(), byte(503).to_string()]);
}

#[test]
fn a_fault_names_vector_offset_and_side() {
    let (mut peer, addr) = holder("a_fault_names_vector_offset_and_side");
    let page = page_size();
    let pid = peer.pid();
    let (edge, mut ours) = (addr + 2 * page as u64, vec![0u8; 2000]);
    let fault = Err(CmaError::Fault { position: 1, offset: 0, side: FaultSide::Remote });

    // The first two pages can be neither read nor written.
    assert_eq!(ask(&mut peer, "protect", 2 * page), "true");
    assert_eq!(copy_two(pid, [edge, addr + page as u64], &mut ours, Direction::Read), fault);
    assert_eq!(copy_two(pid, [edge, addr + page as u64], &mut ours, Direction::Write), fault);

    // They can be read only.
    assert_eq!(ask(&mut peer, "read-only", 2 * page), "true");
    assert_eq!(copy_two(pid, [edge, addr], &mut ours, Direction::Read), Ok(2000));
    assert_eq!(copy_two(pid, [edge, edge - 300], &mut ours, Direction::Write), fault);

    // They are not there; the second block begins in the hole and ends behind it.
    assert_eq!(ask(&mut peer, "unmap", 2 * page), "true");
    assert_eq!(copy_two(pid, [edge, edge - 300], &mut ours, Direction::Read), fault);
}

/// Copies the halves of `ours` from or to two addresses of the peer.
fn copy_two(pid: Pid, addrs: [u64; 2], ours: &mut [u8], direction: Direction) -> Result<u64, CmaError> {
    let mut vectors = Vectors::new();
    for (block, addr) in ours.chunks_mut(1000).zip(addrs) {
        assert!(vectors.push(local(block), remote(addr, 1000)));
    }
    vectors.transfer(direction, pid)
}

#[test]
fn a_fault_in_the_middle_of_a_vector_counts_the_bytes_before() {
    let (peer, addr) = holder("a_fault_in_the_middle_of_a_vector_counts_the_bytes_before");
    let page = page_size();
    let ours = Mapping::private(3 * page).unwrap();
    let start = ours.start().as_ptr();
    let mut vectors = Vectors::new();
    // SAFETY: the mapping is ours and outlives the slice.
    let slice = unsafe { RegionSlice::new(start as u64 + 10, 2 * page as u64, Touch::Syscall) };
    assert!(vectors.push(local(&mut [0; 5]), remote(addr, 5)));
    assert!(vectors.push(slice, remote(addr, 2 * page)));

    for protection in [MprotectFlags::READ, MprotectFlags::empty()] {
        // SAFETY: the page is ours and nothing refers to it.
        unsafe { mprotect(start.add(page).cast(), page, protection).unwrap() };
        let fault = vectors.transfer(Direction::Read, peer.pid());
        let offset = page as u64 - 10;
        assert_eq!(fault, Err(CmaError::Fault { position: 1, offset, side: FaultSide::Local }));
    }
}

#[test]
fn more_than_one_call_can_carry_is_copied_by_several() {
    let (peer, addr) = holder("more_than_one_call_can_carry_is_copied_by_several");
    // The kernel ends a call short of 2 GiB, here in the middle of a vector: the same bytes again and again are 3 GiB.
    let mut ours = vec![0u8; LEN];
    let whole = local(&mut ours);
    let mut vectors = Vectors::new();
    for _ in 0..MAX_VECTORS {
        assert!(vectors.push(whole, remote(addr, LEN)));
    }
    assert_eq!(vectors.transfer(Direction::Read, peer.pid()), Ok((MAX_VECTORS * LEN) as u64));
    assert!(ours.iter().enumerate().all(|(index, &read)| read == byte(index)));
}

#[test]
fn what_happens_to_a_process_that_is_gone_or_never_was() {
    let (mut peer, addr) = holder("what_happens_to_a_process_that_is_gone_or_never_was");
    let mut vectors = Vectors::new();
    assert!(vectors.push(local(&mut [0]), remote(addr, 1)));
    let pid = peer.pid();
    assert_eq!(vectors.transfer(Direction::Read, pid), Ok(1));
    peer.kill();
    peer.wait();
    assert_eq!(vectors.transfer(Direction::Read, pid), Err(CmaError::NoProcess));
    let nobody = Pid::new(i32::MAX).unwrap();
    assert_eq!(vectors.transfer(Direction::Read, nobody), Err(CmaError::NoProcess));
}

#[test]
fn unusable_pairs_are_not_taken() {
    let mut vectors = Vectors::new();
    let mut bytes = [0u8; 8];
    assert!(!vectors.push(local(&mut bytes), remote(4096, 7)), "unequal lengths");
    assert!(!vectors.push(local(&mut bytes), remote(u64::MAX - 3, 8)), "past the end of the address space");
    assert_eq!((vectors.len(), vectors.bytes()), (0, 0));
    assert_eq!(vectors.transfer(Direction::Read, Pid::own()), Ok(0), "nothing to do");
    assert!(vectors.push(local(&mut []), remote(4096, 0)));
    assert_eq!(vectors.transfer(Direction::Read, Pid::own()), Ok(0));
}

#[test]
fn an_address_with_the_top_bit_is_a_fault_and_no_more() {
    let mut vectors = Vectors::new();
    assert!(vectors.push(local(&mut [0; 16]), remote(1 << 63, 16)));
    let fault = CmaError::Fault { position: 0, offset: 0, side: FaultSide::Remote };
    assert_eq!(vectors.transfer(Direction::Read, Pid::own()), Err(fault));
    assert_eq!(vectors.transfer(Direction::Write, Pid::own()), Err(fault));
}

proptest! {
    /// Against a byte array: blocks of one buffer into another, within this process.
    #[test]
    fn it_copies_what_slices_copy(
        blocks in prop::collection::vec((0usize..5000, 0usize..60_000, 0usize..60_000), 0..40),
        write: bool,
    ) {
        let theirs: Vec<u8> = (0..65_536).map(byte).collect();
        let (mut ours, mut theirs) = (vec![0xa5u8; 65_536], theirs);
        let (mut our_model, mut their_model) = (ours.clone(), theirs.clone());
        let mut vectors = Vectors::new();
        let their_addr = theirs.as_mut_ptr() as u64;
        for (len, to, from) in blocks {
            prop_assert!(vectors.push(local(&mut ours[to..to + len]), remote(their_addr + from as u64, len)));
            if write {
                their_model[from..from + len].copy_from_slice(&our_model[to..to + len]);
            } else {
                our_model[to..to + len].copy_from_slice(&their_model[from..from + len]);
            }
        }
        let direction = if write { Direction::Write } else { Direction::Read };
        prop_assert_eq!(vectors.transfer(direction, Pid::own()), Ok(vectors.bytes()));
        prop_assert!(ours == our_model && theirs == their_model);
    }
}
