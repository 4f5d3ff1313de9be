use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use super::*;

fn is_readable(event: &EventFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(event, PollFlags::IN)], Some(&now)).unwrap() == 1
}

#[test]
fn it_is_readable_from_a_signal_to_the_drain() {
    let event = EventFd::new().unwrap();
    assert!(!is_readable(&event));
    assert_eq!(event.drain(), 0, "it does not wait");
    event.signal();
    event.signal();
    assert!(is_readable(&event));
    assert_eq!(event.drain(), 2);
    assert!(!is_readable(&event));
}

#[test]
fn a_counter_at_its_limit_does_not_wait() {
    let event = EventFd::new().unwrap();
    rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    event.signal();
    assert!(is_readable(&event));
    assert_eq!(event.drain(), u64::MAX - 1);
}
