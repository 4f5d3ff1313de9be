//! Notifications: in order, once, after the data, never more than fits.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use kvferry::{Agent, Event, Notification, NotifyError, Op, PostError, Settings, Status, TransferOptions};
use kvferry_testkit::hook::{Pause, Point, unpaused};
use kvferry_testkit::{
    MemoryClass, PATIENCE, Pair, Pattern, Side, agent, eventually, expect_done, run, unique_name,
};

const MIB: usize = 1 << 20;

/// What one notification may carry, and what the inbox holds.
const LARGEST: usize = MIB;
const INBOX: usize = 64 * MIB;
const OVERHEAD: usize = 64;

/// Collects notifications until there are `count`.
#[track_caller]
fn collect(agent: &Agent, count: usize) -> Vec<Notification> {
    let mut all = Vec::new();
    eventually(&format!("{count} notifications"), || {
        all.extend(agent.notifications());
        all.len() >= count
    });
    assert_eq!(all.len(), count);
    all
}

fn texts(notes: &[Notification]) -> Vec<String> {
    notes.iter().map(|note| String::from_utf8_lossy(&note.payload).into_owned()).collect()
}

/// Two agents that know each other and are connected.
fn connected(stems: [&str; 2]) -> [Agent; 2] {
    let [left, right] = stems.map(agent);
    left.load_remote(&right.metadata()).expect("metadata");
    right.load_remote(&left.metadata()).expect("metadata");
    left.connect(right.name(), PATIENCE).expect("a link");
    [left, right]
}

#[test]
fn it_arrives_without_the_initiator_doing_anything() {
    let _unpaused = unpaused();
    let pair = Pair::new(MemoryClass::Private, 16 << 20);
    pair.left.pool.fill(Pattern::new(1));
    // One that the poster may copy itself, and one that it may not.
    for len in [4096, 16 << 20] {
        let options = TransferOptions::default().notify("there");
        let transfer = pair.left.one_block(Op::Write, &pair.right, 0, len, options);
        transfer.post().expect("a post");
        // From here on nobody touches the transfer or its agent.
        assert_eq!(texts(&collect(&pair.right.agent, 1)), ["there"]);
        assert_eq!(pair.right.pool.difference_in(Pattern::new(1), 0, 0, len), None);
        expect_done(&transfer);
    }
}

#[test]
fn a_bare_one_does_not_wait_for_data_in_flight() {
    let pause = Pause::at(Point::BeforeCopy);
    let pair = Pair::new(MemoryClass::Private, 1 << 20);
    let transfer =
        pair.left.one_block(Op::Write, &pair.right, 0, 1 << 20, TransferOptions::default().notify("data"));
    transfer.post().expect("a post");
    pause.await_arrivals(1);
    for n in 0..100 {
        pair.left.agent.notify(pair.right.name(), format!("bare {n}").as_bytes()).expect("room");
    }
    let notes = texts(&collect(&pair.right.agent, 100));
    assert_eq!(notes, (0..100).map(|n| format!("bare {n}")).collect::<Vec<_>>());
    assert_eq!(transfer.status(), Status::Running);
    pause.open();
    expect_done(&transfer);
    assert_eq!(texts(&pair.right.agent.notifications()), ["data"]);
}

#[test]
fn the_data_is_visible_before_the_notification_leaves_and_a_cancel_in_between_holds_it_back() {
    let pause = Pause::at(Point::BeforeNotify);
    let pair = Pair::new(MemoryClass::Private, 1 << 20);
    pair.left.pool.fill(Pattern::new(2));
    let transfer =
        pair.left.one_block(Op::Write, &pair.right, 0, 1 << 20, TransferOptions::default().notify("never"));
    std::thread::scope(|scope| {
        // Who posts may be the one who finds that all is copied, and stops at the point.
        scope.spawn(|| transfer.post().expect("a post"));
        pause.await_arrivals(1);
        pair.right.pool.verify(Pattern::new(2));
        assert_eq!(transfer.status(), Status::Running);
        assert!(pair.right.agent.notifications().is_empty());
        transfer.cancel().expect("no byte is under way");
        assert_eq!(transfer.status(), Status::Cancelled);
        pause.open();
    });
    pair.left.agent.notify(pair.right.name(), b"end").expect("room");
    assert_eq!(texts(&collect(&pair.right.agent, 1)), ["end"]);
    transfer.post().expect("a post");
    assert_eq!(texts(&collect(&pair.right.agent, 1)), ["never"]);
    expect_done(&transfer);
}

#[test]
fn another_notification_can_be_given_with_the_post() {
    let _unpaused = unpaused();
    let pair = Pair::new(MemoryClass::Private, 1 << 20);
    let transfer =
        pair.left.one_block(Op::Read, &pair.right, 0, 1 << 20, TransferOptions::default().notify("usual"));
    for payload in [Some(b"other".to_vec()), None, Some(Vec::new())] {
        transfer.post_with_notification(payload).expect("a post");
        expect_done(&transfer);
    }
    run(&transfer);
    assert_eq!(texts(&pair.right.agent.notifications()), ["other", "", "usual"]);
}

#[test]
fn each_senders_order_is_kept() {
    let _unpaused = unpaused();
    let right = agent("right");
    let left: Vec<_> = (0..4).map(|n| agent(&format!("left{n}"))).collect();
    let mut received: HashMap<String, Vec<String>> = HashMap::new();
    let mut count = 0;
    std::thread::scope(|scope| {
        for sender in &left {
            let right = &right;
            scope.spawn(move || {
                sender.load_remote(&right.metadata()).expect("metadata");
                for n in 0..500 {
                    sender.notify(right.name(), n.to_string().as_bytes()).expect("room");
                }
            });
        }
        eventually("all notifications", || {
            for note in right.notifications() {
                let sender = left.iter().find(|agent| agent.name() == note.from).expect("a sender");
                assert_eq!(note.incarnation, sender.incarnation());
                received
                    .entry(note.from)
                    .or_default()
                    .push(String::from_utf8_lossy(&note.payload).into_owned());
                count += 1;
            }
            count == 2000
        });
    });
    let expected: Vec<_> = (0..500).map(|n| n.to_string()).collect();
    assert!(received.len() == 4 && received.values().all(|texts| *texts == expected));
}

#[test]
fn a_payload_has_a_largest_size() {
    let _unpaused = unpaused();
    let [left, right] = connected(["left", "right"]);
    left.notify(right.name(), &vec![7; LARGEST]).expect("the largest");
    left.notify(right.name(), b"").expect("the smallest");
    let error = left.notify(right.name(), &vec![7; LARGEST + 1]).expect_err("one byte more");
    assert_eq!(error, NotifyError::TooLarge { bytes: LARGEST + 1, max: LARGEST });
    assert_eq!((error.code(), error.remedy().is_empty()), ("notify.too_large", false));
    let lengths: Vec<_> = collect(&right, 2).iter().map(|note| note.payload.len()).collect();
    assert_eq!(lengths, [LARGEST, 0]);

    let pair = Pair::new(MemoryClass::Private, 4096);
    let options = TransferOptions::default().notify(vec![0; LARGEST + 1]);
    let transfer = pair.left.one_block(Op::Write, &pair.right, 0, 4096, options);
    let error = transfer.post().expect_err("too large");
    assert!(matches!(error, PostError::Notify(NotifyError::TooLarge { .. })), "{error}");
    assert_eq!(transfer.status(), Status::Created, "it was not posted");
    transfer.post_with_notification(None).expect("without it");
    expect_done(&transfer);
}

#[test]
fn the_inbox_is_bounded_and_draining_it_makes_room() {
    let _unpaused = unpaused();
    let pair = Pair::new(MemoryClass::Private, 4096);
    let (left, right) = (&pair.left.agent, &pair.right.agent);
    left.connect(right.name(), PATIENCE).expect("a link");
    let fits = INBOX / (LARGEST + OVERHEAD);
    let payload = |n: usize| {
        let mut payload = vec![n as u8; LARGEST];
        payload[..8].copy_from_slice(&(n as u64).to_le_bytes());
        payload
    };
    for n in 0..fits {
        left.notify(right.name(), &payload(n)).expect("room");
    }
    let error = left.notify(right.name(), &payload(fits)).expect_err("no room");
    assert_eq!(error, NotifyError::Backlog { peer: right.name().into(), bytes: LARGEST });
    assert_eq!((error.code(), error.remedy().is_empty()), ("notify.backlog", false));
    // What is small still fits, and what fits is counted to the byte.
    let left_over = INBOX - fits * (LARGEST + OVERHEAD);
    left.notify(right.name(), &vec![0; left_over - OVERHEAD]).expect("the last byte");
    assert_eq!(left.notify(right.name(), b"").expect_err("full").code(), "notify.backlog");
    // A transfer with a notification is not posted, without one it is.
    let transfer =
        pair.left.one_block(Op::Write, &pair.right, 0, 4096, TransferOptions::default().notify("done"));
    let error = transfer.post().expect_err("no room");
    assert_eq!(error.code(), "notify.backlog", "{error}");
    assert_eq!(transfer.status(), Status::Created);
    transfer.post_with_notification(None).expect("without it");
    expect_done(&transfer);
    // Nobody else's room is taken.
    let other = agent("other");
    other.load_remote(&right.metadata()).expect("metadata");
    other.notify(right.name(), b"from another").expect("room of its own");

    let notes = collect(right, fits + 2);
    let large: Vec<_> = notes.iter().filter(|note| note.payload.len() == LARGEST).collect();
    assert!(large.len() == fits && (0..fits).all(|n| large[n].payload == payload(n)), "in order and whole");
    eventually("room again", || left.notify(right.name(), &payload(0)).is_ok());
    run(&transfer);
    assert_eq!(texts(&collect(right, 2)[1..]), ["done"]);
}

#[test]
fn reserved_room_comes_back_when_a_transfer_does_not_notify() {
    let pause = Pause::at(Point::BeforeCopy);
    let pair = Pair::new(MemoryClass::Private, 1 << 20);
    let (left, right) = (&pair.left.agent, &pair.right.agent);
    // Each attempt reserves a sixty-fourth; if the room of cancelled ones were lost, it would end long before.
    let options = TransferOptions::default().notify(vec![1; LARGEST]);
    let transfer = pair.left.one_block(Op::Write, &pair.right, 0, 1 << 20, options);
    transfer.post().expect("a post");
    pause.await_arrivals(1);
    // Posted, its room is taken: what is left holds 62 more.
    for _ in 0..62 {
        left.notify(right.name(), &vec![2; LARGEST]).expect("room");
    }
    assert_eq!(left.notify(right.name(), &vec![2; LARGEST]).expect_err("taken").code(), "notify.backlog");
    pause.open();
    expect_done(&transfer);
    collect(right, 63);
    drop(pause);
    let _unpaused = unpaused();
    eventually("room again", || left.notify(right.name(), &vec![2; LARGEST]).is_ok());
    for _ in 0..200 {
        match transfer.post() {
            Ok(()) => {}
            Err(error) => {
                // The room of those that were done is with the inbox until it is drained.
                assert_eq!(error.code(), "notify.backlog", "{error}");
                right.notifications();
                continue;
            }
        }
        transfer.cancel().expect("it stops");
        // One whose bytes are all there goes on to notify.
        assert!(transfer.wait(PATIENCE).expect("an end").is_final());
    }
    right.notifications();
    eventually("no room was lost", || {
        let sent = (0..60).take_while(|_| left.notify(right.name(), &vec![3; LARGEST]).is_ok()).count();
        eventually("they come", || right.stats().notifications_received == left.stats().notifications_sent);
        right.notifications();
        sent == 60
    });
}

#[test]
fn those_of_a_closed_agent_are_still_delivered_once() {
    let _unpaused = unpaused();
    for _ in 0..20 {
        let [left, right] = connected(["left", "right"]);
        for n in 0..10 {
            left.notify(right.name(), n.to_string().as_bytes()).expect("room");
        }
        let name = left.name().to_owned();
        drop(left);
        let notes = collect(&right, 10);
        assert_eq!(texts(&notes), (0..10).map(|n| n.to_string()).collect::<Vec<_>>());
        assert!(notes.iter().all(|note| note.from == name));
    }
}

#[test]
fn another_life_of_a_sender_is_told_apart() {
    let _unpaused = unpaused();
    let right = agent("right");
    let name = unique_name("phoenix");
    let mut incarnations = Vec::new();
    for n in 0..3 {
        let life = Agent::builder(&name).settings(Settings::default()).build().expect("an agent");
        life.load_remote(&right.metadata()).expect("metadata");
        life.notify(right.name(), format!("life {n}").as_bytes()).expect("room");
        incarnations.push(life.incarnation());
        let notes = collect(&right, 1);
        assert_eq!((notes[0].from.as_str(), notes[0].incarnation), (name.as_str(), incarnations[n]));
    }
    assert!(incarnations[0] != incarnations[1] && incarnations[1] != incarnations[2]);
}

#[test]
fn an_event_says_that_some_are_waiting() {
    let _unpaused = unpaused();
    let [left, right] = connected(["left", "right"]);
    let events = right.events().expect("a queue");
    for _ in 0..3 {
        left.notify(right.name(), b"one").expect("room");
        left.notify(right.name(), b"two").expect("room");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left_time = deadline.saturating_duration_since(Instant::now());
            match events.wait(left_time).expect("an event") {
                Event::Notified { peer } if peer == left.name() => break,
                _ => {}
            }
        }
        assert_eq!(texts(&collect(&right, 2)), ["one", "two"]);
        while events.try_next().is_some() {}
    }
    assert_eq!(left.stats().notifications_sent, 6);
    assert_eq!(right.stats().notifications_received, 6);
}

#[test]
fn thousands_a_second_pass() {
    let _unpaused = unpaused();
    let [left, right] = connected(["left", "right"]);
    let begun = Instant::now();
    let count = 20_000;
    let mut received = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..count {
                let payload = (n as u32).to_le_bytes();
                while let Err(error) = left.notify(right.name(), &payload) {
                    assert_eq!(error.code(), "notify.backlog");
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        eventually("all of them", || {
            for note in right.notifications() {
                assert_eq!(note.payload, (received as u32).to_le_bytes());
                received += 1;
            }
            received == count
        });
    });
    println!("{count} notifications in {:?}", begun.elapsed());
}

#[test]
fn a_side_may_notify_while_it_is_notified() {
    let _unpaused = unpaused();
    let pair = Pair::new(MemoryClass::Private, 4096);
    let ping = |from: &Side, to: &Side, payload: &[u8]| from.agent.notify(to.name(), payload).expect("room");
    ping(&pair.left, &pair.right, b"0");
    for n in 1..200 {
        let (here, there) = if n % 2 == 1 { (&pair.right, &pair.left) } else { (&pair.left, &pair.right) };
        let notes = collect(&here.agent, 1);
        assert_eq!(texts(&notes), [(n - 1).to_string()]);
        ping(here, there, n.to_string().as_bytes());
    }
}
