use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

fn connected(window: u64) -> (NotifySender, NotifyReceiver) {
    let (mut sender, mut receiver) = (NotifySender::new(), NotifyReceiver::new(window));
    sender.on_resume(receiver.resume()).unwrap();
    (sender, receiver)
}

fn issue(sender: &mut NotifySender, len: usize, token: Option<u64>) -> u64 {
    let reservation = sender.credit().reserve(vec![7; len]).unwrap();
    sender.issue(reservation, token).unwrap().0
}

fn seqs(frames: &[Frame]) -> Vec<u64> {
    let seq = |frame: &Frame| match frame {
        Frame::Notify { seq, .. } => *seq,
        other => panic!("{other:?}"),
    };
    frames.iter().map(seq).collect()
}

#[test]
fn nothing_is_promised_before_the_peer_told_its_room() {
    let sender = NotifySender::new();
    assert_eq!(
        sender.credit().reserve(vec![]).unwrap_err(),
        NotifyError::Backlog { needed: 64, available: 0 }
    );
}

#[test]
fn room_is_bounded_and_comes_back() {
    let (mut sender, mut receiver) = connected(1000);
    let credit = sender.credit();
    let first = credit.reserve(vec![0; 436]).unwrap();
    let second = credit.reserve(vec![0; 436]).unwrap();
    assert!(matches!(credit.reserve(vec![]), Err(NotifyError::Backlog { available: 0, .. })));
    drop(second);
    assert_eq!(credit.available(), 500);

    // Issued and acknowledged, it still lies in the inbox.
    let (seq, _) = sender.issue(first, None).unwrap();
    assert_eq!(receiver.accept(seq, 436), Ok(Arrival::New));
    sender.on_ack(seq).unwrap();
    assert_eq!(credit.available(), 500);
    let Some(Frame::Credit { consumed }) = receiver.drained(500) else {
        panic!("the inbox is empty");
    };
    sender.on_credit(consumed).unwrap();
    assert_eq!(credit.available(), 1000);
}

#[test]
fn payloads_are_bounded() {
    let (sender, mut receiver) = connected(INBOX_BYTES);
    let len = MAX_NOTIFICATION + 1;
    assert_eq!(sender.credit().reserve(vec![0; len]).unwrap_err(), NotifyError::TooLarge { len });
    assert!(sender.credit().reserve(vec![0; MAX_NOTIFICATION]).is_ok());
    assert_eq!(receiver.accept(1, len), Err(NotifyViolation::TooLarge { len }));
}

#[test]
fn reservations_belong_to_one_link() {
    let (mut one, _) = connected(1000);
    let (other, _) = connected(1000);
    let reservation = other.credit().reserve(vec![1]).unwrap();
    assert_eq!(one.issue(reservation, None).unwrap_err(), NotifyError::Foreign);
    assert_eq!(other.credit().available(), 1000);
}

#[test]
fn acknowledgements_are_cumulative_and_name_transfers() {
    let (mut sender, _) = connected(10_000);
    for token in [Some(11), None, Some(13), Some(14)] {
        issue(&mut sender, 1, token);
    }
    assert_eq!(sender.on_ack(3), Ok(vec![11, 13]));
    assert_eq!(sender.on_ack(3), Ok(vec![]));
    assert_eq!(sender.on_ack(1), Ok(vec![]));
    assert_eq!(sender.on_ack(5), Err(NotifyViolation::AckBeyondSent { seq: 5, last: 4 }));
    assert_eq!(sender.on_ack(4), Ok(vec![14]));
    assert_eq!(sender.unacked(), 0);
}

#[test]
fn duplicates_are_dropped_and_gaps_are_fine() {
    let mut receiver = NotifyReceiver::new(10_000);
    for (seq, arrival) in [
        (1, Arrival::New),
        (1, Arrival::Duplicate),
        (5, Arrival::New),
        (4, Arrival::Duplicate),
        (6, Arrival::New),
        (0, Arrival::Duplicate),
    ] {
        assert_eq!(receiver.accept(seq, 1), Ok(arrival), "{seq}");
    }
    assert_eq!(receiver.held(), 3 * 65);
}

#[test]
fn senders_that_ignore_credit_are_caught() {
    let mut receiver = NotifyReceiver::new(200);
    assert_eq!(receiver.accept(1, 36), Ok(Arrival::New));
    assert_eq!(receiver.accept(2, 36), Ok(Arrival::New));
    assert_eq!(receiver.accept(3, 0), Err(NotifyViolation::Overrun { seq: 3, window: 200 }));
    assert_eq!(receiver.held(), 200);
}

#[test]
fn credits_are_batched() {
    let mut receiver = NotifyReceiver::new(6400);
    for seq in 1..=50 {
        receiver.accept(seq, 0).unwrap();
    }
    let credits: Vec<usize> = (1..=50).filter(|_| receiver.drained(64).is_some()).collect();
    // A quarter of the window is 25 of them; the last one empties the inbox.
    assert_eq!(credits, [25, 50]);
    assert_eq!(receiver.drained(64), None, "more than there was");
}

#[test]
fn wrong_credits_are_caught() {
    let (mut sender, _) = connected(1000);
    issue(&mut sender, 36, None);
    sender.on_credit(100).unwrap();
    assert!(sender.on_credit(99).is_err());
    assert!(sender.on_credit(101).is_err());
    assert_eq!(sender.credit().available(), 1000);
}

#[test]
fn after_a_break_bare_ones_are_sent_again_and_those_of_transfers_are_not() {
    let (mut sender, mut receiver) = connected(1000);
    for token in [None, None, Some(3), None, Some(5)] {
        issue(&mut sender, 36, token);
    }
    // The first two arrived, their acknowledgements did not.
    receiver.accept(1, 36).unwrap();
    receiver.accept(2, 36).unwrap();
    receiver.drained(100);
    assert_eq!(sender.on_channel_lost(), [3, 5]);
    issue(&mut sender, 36, None);

    sender.on_resume(receiver.resume()).unwrap();
    assert_eq!(seqs(&sender.resend()), [4, 6]);
    // Undrained: the second. Under way: two. All else came back.
    assert_eq!(sender.credit().available(), 1000 - 3 * 100);
    assert_eq!(issue(&mut sender, 36, None), 7);
}

#[test]
fn sender_without_memory_takes_up_the_sequence() {
    let (mut sender, mut receiver) = connected(1000);
    for _ in 0..4 {
        let seq = issue(&mut sender, 36, None);
        receiver.accept(seq, 36).unwrap();
    }
    receiver.drained(100);

    let mut fresh = NotifySender::new();
    fresh.on_resume(receiver.resume()).unwrap();
    assert_eq!(fresh.credit().available(), 700);
    assert_eq!(issue(&mut fresh, 36, None), 5);
    assert_eq!(receiver.accept(5, 36), Ok(Arrival::New));
}

#[test]
fn impossible_resumes_are_refused() {
    let (mut sender, mut receiver) = connected(1000);
    issue(&mut sender, 1, None);
    let good = receiver.resume();
    for bad in [
        Resume { last_seq: 2, ..good },
        Resume { received: 1, consumed: 2, ..good },
        Resume { received: u64::MAX, ..good },
    ] {
        assert!(sender.on_resume(bad).is_err(), "{bad:?}");
    }
    sender.on_resume(good).unwrap();
    assert_eq!(sender.credit().available(), 1000 - 65);
}

#[test]
fn claims_of_a_boundless_inbox_are_cut() {
    let mut sender = NotifySender::new();
    let resume = Resume { window: u64::MAX, ..Resume::default() };
    sender.on_resume(resume).unwrap();
    assert_eq!(sender.credit().available(), INBOX_BYTES);
}

#[derive(Clone, Debug)]
enum Step {
    Issue { len: usize, transfer: bool },
    ReserveAndDrop { len: usize },
    Arrive,
    Drain,
    Acknowledge,
    Break,
    Forget,
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0_usize..300, any::<bool>()).prop_map(|(len, transfer)| Step::Issue { len, transfer }),
        1 => (0_usize..300).prop_map(|len| Step::ReserveAndDrop { len }),
        6 => Just(Step::Arrive),
        4 => Just(Step::Drain),
        4 => Just(Step::Acknowledge),
        1 => Just(Step::Break),
        1 => Just(Step::Forget),
    ]
}

proptest! {
    /// Whatever breaks when: the inbox never overruns, order holds, nothing comes twice, bare ones are not lost unless
    /// their sender was forgotten, and at the end all room is free again.
    #[test]
    fn sender_and_receiver_agree(steps in prop::collection::vec(steps(), 1..200)) {
        let window = 1000;
        let (mut sender, mut receiver) = connected(window);
        let mut wire: VecDeque<(u64, usize)> = VecDeque::new();
        let mut inbox: VecDeque<u64> = VecDeque::new();
        let mut credits: VecDeque<u64> = VecDeque::new();
        let (mut last, mut acked_upto) = (0, 0);
        let mut bare: VecDeque<u64> = VecDeque::new();
        let mut delivered: Vec<u64> = Vec::new();
        for step in steps {
            match step {
                Step::Issue { len, transfer } => {
                    if let Ok(reservation) = sender.credit().reserve(vec![0; len]) {
                        let token = transfer.then_some(1);
                        let (seq, _) = sender.issue(reservation, token).unwrap();
                        wire.push_back((seq, len));
                        if !transfer {
                            bare.push_back(seq);
                        }
                    }
                }
                Step::ReserveAndDrop { len } => drop(sender.credit().reserve(vec![0; len])),
                Step::Arrive => {
                    if let Some((seq, len)) = wire.pop_front()
                        && receiver.accept(seq, len).unwrap() == Arrival::New
                    {
                        prop_assert!(seq > last);
                        last = seq;
                        delivered.push(seq);
                        inbox.push_back(notification_cost(len));
                        prop_assert!(inbox.iter().sum::<u64>() <= window);
                    }
                }
                Step::Drain => {
                    if let Some(cost) = inbox.pop_front()
                        && let Some(Frame::Credit { consumed }) = receiver.drained(cost)
                    {
                        credits.push_back(consumed);
                    }
                }
                Step::Acknowledge => {
                    acked_upto = last;
                    sender.on_ack(acked_upto).unwrap();
                    for consumed in credits.drain(..) {
                        sender.on_credit(consumed).unwrap();
                    }
                }
                Step::Break | Step::Forget => {
                    wire.clear();
                    credits.clear();
                    if matches!(step, Step::Forget) {
                        sender = NotifySender::new();
                        bare.retain(|seq| *seq <= last);
                    } else {
                        sender.on_channel_lost();
                    }
                    sender.on_resume(receiver.resume()).unwrap();
                    for frame in sender.resend() {
                        let Frame::Notify { seq, payload } = frame else { unreachable!() };
                        prop_assert!(seq > acked_upto);
                        wire.push_back((seq, payload.len()));
                    }
                }
            }
        }
        for (seq, len) in wire {
            if receiver.accept(seq, len).unwrap() == Arrival::New {
                delivered.push(seq);
                inbox.push_back(notification_cost(len));
            }
        }
        prop_assert!(delivered.is_sorted_by(|a, b| a < b));
        prop_assert!(bare.iter().all(|seq| delivered.contains(seq)));
        receiver.drained(inbox.iter().sum());
        sender.on_channel_lost();
        sender.on_resume(receiver.resume()).unwrap();
        prop_assert_eq!(sender.credit().available(), window);
    }
}
