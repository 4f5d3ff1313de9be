use super::*;
use crate::testing::{Peer, role, tell};

#[test]
fn only_positive_numbers_name_a_process() {
    assert_eq!((Pid::new(0), Pid::new(-1)), (None, None));
    assert_eq!(Pid::new(i32::MAX).map(Pid::get), Some(i32::MAX));
    assert_eq!(Pid::own().get() as u32, std::process::id());
    assert_eq!(Pid::own().to_string(), std::process::id().to_string());
}

#[test]
fn threads_have_ids_of_their_own() {
    assert_eq!(gettid(), gettid());
    assert_ne!(std::thread::spawn(gettid).join().unwrap(), gettid());
}

#[test]
fn dumpable_can_be_given_up_and_taken_back() {
    // In a process of its own: other tests read this one's memory.
    if role().is_some() {
        set_dumpable(false).unwrap();
        let without = is_dumpable();
        set_dumpable(true).unwrap();
        tell(format_args!("{without} {}", is_dumpable()));
        std::process::exit(0);
    }
    let mut peer = Peer::start("process::tests::dumpable_can_be_given_up_and_taken_back", "child");
    assert_eq!(peer.hear(), "false true");
}

#[test]
fn a_duration_too_long_for_the_kernel_is_the_longest() {
    assert_eq!(timespec(Duration::MAX).tv_sec, i64::MAX);
    let short = timespec(Duration::from_micros(1_500_000));
    assert_eq!((short.tv_sec, short.tv_nsec), (1, 500_000_000));
}
