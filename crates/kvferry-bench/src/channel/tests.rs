use std::os::unix::net::UnixStream;

use super::*;
use crate::message::{Reply, Request};

fn pair() -> (Channel, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    (Channel::new(ours.try_clone().expect("clone"), ours), theirs)
}

#[test]
fn messages_arrive_in_order_until_the_end() {
    let (mut channel, theirs) = pair();
    let mut other = Channel::new(theirs.try_clone().expect("clone"), theirs);
    other.say(&Request::Poison).expect("say");
    other.say(&Request::Verify { flip: true }).expect("say");
    channel.say(&Reply::Done).expect("say");
    let patience = Duration::from_secs(5);
    assert_eq!(other.hear(patience).expect("hear"), Some(Reply::Done));
    assert_eq!(channel.hear(patience).expect("hear"), Some(Request::Poison));
    assert_eq!(channel.hear(patience).expect("hear"), Some(Request::Verify { flip: true }));
}

#[test]
fn silence_nonsense_and_the_end_are_told_apart() {
    let (mut channel, mut theirs) = pair();
    let error = channel.hear::<Request>(Duration::from_millis(1)).expect_err("silence");
    assert!(error.to_string().contains("did not answer"), "{error}");
    theirs.write_all(b"{\"poisn\":1}\n").expect("write");
    let error = channel.hear::<Request>(Duration::from_secs(5)).expect_err("nonsense");
    assert!(error.to_string().contains("poisn"), "{error}");
    theirs.shutdown(std::net::Shutdown::Both).expect("shutdown");
    assert_eq!(channel.hear::<Request>(Duration::from_secs(5)).expect("end"), None);
}

#[test]
fn endless_lines_are_refused() {
    let (mut channel, mut theirs) = pair();
    let writer = thread::spawn(move || while theirs.write_all(&[b'x'; 1 << 16]).is_ok() {});
    let error = channel.hear::<Request>(Duration::from_secs(20)).expect_err("endless");
    assert!(format!("{error:#}").contains("too long"), "{error:#}");
    drop(channel);
    writer.join().expect("the reader hangs up");
}
