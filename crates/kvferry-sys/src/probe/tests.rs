use rustix::io::Errno;
use rustix::param::page_size;

use super::*;
use crate::cma::FaultSide;
use crate::mapping::Mapping;
use crate::testing::{Peer, hear, role, tell};

#[test]
fn a_nonce_is_read_and_answered_in_another_process() {
    if role().is_some() {
        let word = NonceWord::new(0x1234_5678_9abc_def0);
        tell(word.addr());
        loop {
            hear();
            tell(word.load());
        }
    }
    let mut peer = Peer::start("probe::tests::a_nonce_is_read_and_answered_in_another_process", "holder");
    let addr = peer.hear_number();
    let ask = |peer: &mut Peer| {
        peer.tell("what is there?");
        peer.hear_number::<u64>()
    };
    assert_eq!(probe(peer.pid(), addr, 99, 1), Err(CmaError::Mismatch));
    assert_eq!(ask(&mut peer), 0x1234_5678_9abc_def0, "another's word is left alone");
    assert_eq!(probe(peer.pid(), addr, 0x1234_5678_9abc_def0, u64::MAX), Ok(()));
    assert_eq!(ask(&mut peer), u64::MAX);
    peer.kill();
    peer.wait();
    assert_eq!(probe(peer.pid(), addr, 1, 2), Err(CmaError::NoProcess));
}

#[test]
fn it_works_on_this_process() {
    assert!(self_cma_works());
    let word = NonceWord::new(1);
    assert_eq!(probe(Pid::own(), word.addr(), 1, 2), Ok(()));
    assert_eq!(word.load(), 2);
}

/// The second half of a probe, held up until the word is gone.
#[test]
fn an_answer_that_comes_too_late_changes_nothing_else() {
    let word = NonceWord::new(0x5151_5151_5151_5151);
    let addr = word.addr();
    assert_eq!(read_word(Pid::own(), addr), Ok(0x5151_5151_5151_5151));
    drop(word);
    let boxes: Vec<Box<AtomicU64>> = (0..10_000).map(|n| Box::new(AtomicU64::new(n))).collect();
    let words: Vec<NonceWord> = (0..200).map(NonceWord::new).collect();
    write_word(Pid::own(), addr, u64::MAX).unwrap();
    assert!(boxes.iter().zip(0..).all(|(word, n)| word.load(Ordering::Acquire) == n));
    assert!(words.iter().zip(0..).all(|(word, n)| word.load() == n));
}

#[test]
fn words_are_used_again_but_not_soon() {
    let mut last_seen = std::collections::HashMap::new();
    for turn in 0..10 * WORDS {
        let before = last_seen.insert(NonceWord::new(1).addr(), turn);
        assert!(before.is_none_or(|before| turn - before >= WORDS / 2), "used at {before:?} and at {turn}");
    }
    assert!(last_seen.len() <= 3 * WORDS, "{} words", last_seen.len());
}

#[test]
fn an_address_that_is_not_there_is_a_fault() {
    let mapped = Mapping::private(page_size()).unwrap();
    let end = mapped.start().as_ptr() as u64 + mapped.len() as u64;
    for addr in [0, 1 << 63, u64::MAX, end - 4] {
        match probe(Pid::own(), addr, 1, 2) {
            Err(CmaError::Fault { position: 0, side: FaultSide::Remote, .. } | CmaError::Mismatch) => {}
            other => panic!("{addr:#x}: {other:?}"),
        }
    }
}

/// A filter that answers EPERM to the two system calls, as a container's profile does.
#[test]
fn a_filter_on_this_process_shows() {
    if role().is_some() {
        forbid_process_vm();
        tell(self_cma_works());
        let word = NonceWord::new(1);
        tell(probe(Pid::own(), word.addr(), 1, 2) == Err(CmaError::Denied(Errno::PERM)));
        tell(crate::Facts::gather().unwrap().seccomp);
        std::process::exit(0);
    }
    let mut peer = Peer::start("probe::tests::a_filter_on_this_process_shows", "filtered");
    assert_eq!(peer.hear(), "false");
    assert_eq!(peer.hear(), "true");
    assert_eq!(peer.hear(), "2");
}

fn forbid_process_vm() {
    const LOAD_NUMBER: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    let mut steps = [
        step(LOAD_NUMBER, 0, 0, 0),
        step(IF_EQUAL, libc::SYS_process_vm_readv as u32, 2, 0),
        step(IF_EQUAL, libc::SYS_process_vm_writev as u32, 1, 0),
        step(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0),
        step(RETURN, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0, 0),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the program is valid and read before the call returns; it applies to this thread alone.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}
