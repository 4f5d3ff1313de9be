use super::*;

#[test]
fn handshake_ends_up_on_both_sides() {
    let mut pair = Pair::new();
    pair.exchange();
    assert_eq!(pair.frames, ["Hello", "Challenge", "Proof"]);
    let peer = who("prefill", 1);
    assert_eq!(pair.target.peer(), Some(&peer));
    assert_eq!(pair.took(1), [Action::Proven { peer }]);
    assert_eq!(pair.took(0), []);

    pair.admit(NotifyReceiver::new(1000));
    let live = LiveRegions::new(5, vec![RegionId(2)]);
    assert_eq!(pair.took(0), [Action::AttachTransport, Action::Live(live)]);
    assert_eq!(pair.took(1), [Action::AttachTransport]);
    pair.initiator(Command::Transport { bytes: vec![1], fds: 1 }).unwrap();
    pair.exchange();
    let message = Action::Transport { bytes: vec![1], fds: 1 };
    assert_eq!(pair.took(1), [message]);
    pair.attach();
    assert_eq!(pair.took(0), [Action::Up]);
    assert_eq!(pair.took(1), [Action::Up]);
    assert_eq!(pair.initiator.poll_timeout(), None);
}

#[test]
fn token_on_one_side_alone_is_named_on_both() {
    let mut pair = Pair::with([None, Some(b"secret")], None);
    pair.exchange();
    assert_eq!(pair.frames, ["Hello", "Challenge", "Refuse"]);
    let refusal = |token_in_force| Refusal::Unauthorized { token_in_force };
    assert_eq!(lost(&pair.did[0]), &LostCause::Rejected(refusal(true)));
    assert_eq!(lost(&pair.did[1]), &LostCause::Refused(refusal(false)));
}

#[test]
fn initiator_without_the_capability_is_refused() {
    // It skips the check of the target's proof, as an attacker would.
    let mut pair = Pair::new();
    let mut stolen = config(who("prefill", 1), None, None);
    stolen.key = ProofKey::derive(&[43; 32], None);
    let mut thief = Session::initiator(pair.now, stolen, who("decode", 2), NotifySender::new());
    let Some(Action::Send(hello)) = thief.poll() else { panic!("no hello") };
    pair.target.handle_frame(pair.now, hello);
    assert!(matches!(pair.target.poll(), Some(Action::Send(Frame::Challenge(_)))));
    assert_eq!(pair.target.peer(), None, "not proven yet");
    pair.target.handle_frame(pair.now, Frame::Proof([0; 32]));
    let refusal = Refusal::Unauthorized { token_in_force: false };
    assert_eq!(pair.target.poll(), Some(Action::Send(Frame::Refuse(refusal))));
    assert_eq!(pair.target.poll(), Some(Action::Lost(LostCause::Rejected(refusal))));
}

#[test]
fn other_incarnation_is_named() {
    let mut pair = Pair::new();
    let config = config(who("prefill", 1), None, None);
    pair.initiator = Session::initiator(pair.now, config, who("decode", 7), NotifySender::new());
    pair.exchange();
    let found = Refusal::WrongIncarnation { found: Incarnation([2; 16]) };
    assert_eq!(lost(&pair.did[0]), &LostCause::Refused(found));
    assert_eq!(lost(&pair.did[1]), &LostCause::Rejected(found));
}

#[test]
fn other_version_is_told_which_are_supported() {
    let mut pair = Pair::new();
    let Some(Action::Send(Frame::Hello(mut hello))) = pair.initiator.poll() else { panic!("no hello") };
    hello.version = 9;
    pair.target.handle_frame(pair.now, Frame::Hello(hello));
    pair.exchange();
    let refusal = Refusal::Version { oldest: PROTOCOL_VERSION, newest: PROTOCOL_VERSION };
    assert_eq!(lost(&pair.did[0]), &LostCause::Refused(refusal));
}

#[test]
fn caller_can_refuse_whom_it_knows_as_dead() {
    let mut pair = Pair::new();
    pair.exchange();
    pair.target(Command::Refuse(Refusal::Dead)).unwrap();
    pair.exchange();
    assert_eq!(lost(&pair.did[0]), &LostCause::Refused(Refusal::Dead));
    assert_eq!(lost(&pair.did[1]), &LostCause::Rejected(Refusal::Dead));
}

#[test]
fn handshake_and_attachment_have_a_deadline() {
    for attach in [false, true] {
        let mut pair = Pair::new();
        if attach {
            pair.admit(NotifyReceiver::new(1000));
        }
        let deadline = pair.target.poll_timeout().unwrap();
        assert_eq!(deadline, pair.now + 5 * SECOND);
        pair.target.handle_timeout(deadline - SECOND);
        assert!(!pair.did[1].iter().any(|action| matches!(action, Action::Lost(_))));
        pair.target.handle_timeout(deadline);
        pair.initiator.handle_timeout(deadline);
        pair.exchange();
        assert_eq!(lost(&pair.did[0]), &LostCause::HandshakeTimeout);
        assert_eq!(lost(&pair.did[1]), &LostCause::HandshakeTimeout);
        assert_eq!(pair.target.poll_timeout(), None);
    }
}

#[test]
fn impossible_names_are_a_violation() {
    for name in ["", &"x".repeat(257)] {
        let mut pair = Pair::new();
        let Some(Action::Send(Frame::Hello(mut hello))) = pair.initiator.poll() else { panic!("no hello") };
        hello.name = name.to_owned();
        pair.target.handle_frame(pair.now, Frame::Hello(hello));
        pair.exchange();
        let len = name.len();
        assert_eq!(lost(&pair.did[1]), &LostCause::Violation(Violation::Name { len }));
    }
}

#[test]
fn boundless_timeouts_do_not_overflow() {
    let mut config = config(who("prefill", 1), None, Some(Duration::MAX));
    config.handshake_timeout = Duration::MAX;
    config.close_timeout = Duration::MAX;
    let now = Instant::now();
    let mut session = Session::target(now, config);
    assert!(session.poll_timeout().unwrap() > now + 1_000_000 * SECOND);
    let close = Command::Close { reason: ByeReason::Closed, text: String::new() };
    session.command(now, close).unwrap();
    assert!(session.poll_timeout().unwrap() > now + 1_000_000 * SECOND);
}
