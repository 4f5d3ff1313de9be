mod handshake;

use super::*;
use crate::frame::{FrameReader, LiveRegions, Refusal};
use crate::notify::{NotifyCredit, NotifyViolation};
use crate::region::{Incarnation, RegionId};

const SECOND: Duration = Duration::from_secs(1);

fn who(name: &str, life: u8) -> Identity {
    Identity { name: name.into(), incarnation: Incarnation([life; 16]) }
}

fn config(own: Identity, token: Option<&[u8]>, silence: Option<Duration>) -> SessionConfig {
    SessionConfig {
        key: ProofKey::derive(&[42; 32], token),
        token_in_force: token.is_some(),
        nonce: [own.incarnation.0[0]; 32],
        own,
        handshake_timeout: 5 * SECOND,
        close_timeout: SECOND,
        silence_timeout: silence,
    }
}

/// Two sessions and the bytes between them.
struct Pair {
    now: Instant,
    initiator: Session,
    target: Session,
    /// What each did, but for sending.
    did: [Vec<Action>; 2],
    /// Names of the frames that went over, in order.
    frames: Vec<&'static str>,
}

impl Pair {
    fn with(tokens: [Option<&[u8]>; 2], silence: Option<Duration>) -> Self {
        let now = Instant::now();
        let initiator = config(who("prefill", 1), tokens[0], silence);
        let target = config(who("decode", 2), tokens[1], silence);
        let peer = target.own.clone();
        Self {
            now,
            initiator: Session::initiator(now, initiator, peer, NotifySender::new()),
            target: Session::target(now, target),
            did: [Vec::new(), Vec::new()],
            frames: Vec::new(),
        }
    }

    fn new() -> Self {
        Self::with([None, None], None)
    }

    fn up() -> Self {
        Self::up_with(None, 1000)
    }

    fn up_with(silence: Option<Duration>, window: u64) -> Self {
        let mut pair = Self::with([None, None], silence);
        pair.admit(NotifyReceiver::new(window));
        pair.attach();
        pair.did = [Vec::new(), Vec::new()];
        pair.frames.clear();
        pair
    }

    fn admit(&mut self, receiver: NotifyReceiver) {
        self.exchange();
        let live = LiveRegions::new(5, vec![RegionId(2)]);
        self.target(Command::Admit { receiver, live }).unwrap();
        self.exchange();
    }

    fn attach(&mut self) {
        self.initiator(Command::Attached).unwrap();
        self.target(Command::Attached).unwrap();
        self.exchange();
        assert!(self.initiator.is_up() && self.target.is_up());
    }

    fn initiator(&mut self, command: Command) -> Result<(), CommandError> {
        self.initiator.command(self.now, command)
    }

    fn target(&mut self, command: Command) -> Result<(), CommandError> {
        self.target.command(self.now, command)
    }

    fn credit(&self) -> NotifyCredit {
        self.initiator.sender.as_ref().unwrap().credit()
    }

    fn notify(&mut self, payload: &[u8], token: Option<u64>) -> Result<(), CommandError> {
        let reservation = self.credit().reserve(payload.to_vec())?;
        self.initiator(Command::Notify { reservation, token })
    }

    /// Carries frames over until nobody has more to send.
    fn exchange(&mut self) {
        loop {
            let before = self.frames.len();
            self.carry(0);
            self.carry(1);
            if self.frames.len() == before {
                return;
            }
        }
    }

    fn carry(&mut self, side: usize) {
        let (from, to) = match side {
            0 => (&mut self.initiator, &mut self.target),
            _ => (&mut self.target, &mut self.initiator),
        };
        let mut reader = FrameReader::new();
        while let Some(action) = from.poll() {
            let Action::Send(frame) = action else {
                self.did[side].push(action);
                continue;
            };
            self.frames.push(frame.name());
            let mut bytes = Vec::new();
            frame.encode_into(&mut bytes).unwrap();
            reader.push(&bytes);
            to.handle_frame(self.now, reader.pop().unwrap().unwrap());
        }
    }

    /// Cuts the connection; what was not carried over is gone.
    fn cut(&mut self) {
        for (side, session) in [&mut self.initiator, &mut self.target].into_iter().enumerate() {
            session.channel_lost(ChannelLoss::Broken);
            let rest = std::iter::from_fn(|| session.poll());
            self.did[side].extend(rest.filter(|action| !matches!(action, Action::Send(_))));
        }
    }

    fn took(&mut self, side: usize) -> Vec<Action> {
        std::mem::take(&mut self.did[side])
    }
}

fn lost(actions: &[Action]) -> &LostCause {
    match actions.last() {
        Some(Action::Lost(cause)) => cause,
        other => panic!("not lost: {other:?}"),
    }
}

#[test]
fn notifications_are_delivered_before_they_are_acknowledged() {
    let mut pair = Pair::up();
    pair.notify(b"bare", None).unwrap();
    pair.notify(b"transfer", Some(77)).unwrap();
    pair.exchange();
    assert_eq!(
        pair.took(1),
        [
            Action::Deliver { seq: 1, payload: b"bare".to_vec() },
            Action::Deliver { seq: 2, payload: b"transfer".to_vec() },
        ]
    );
    assert_eq!(pair.took(0), [Action::NotifyAcked { token: 77 }]);

    let room = pair.credit().available();
    pair.target(Command::Drained { bytes: 140 }).unwrap();
    pair.exchange();
    assert_eq!(pair.frames.last(), Some(&"Credit"));
    assert_eq!(pair.credit().available(), room + 140);
}

#[test]
fn duplicates_are_acknowledged_and_not_delivered() {
    let mut pair = Pair::up();
    pair.notify(b"x", None).unwrap();
    pair.exchange();
    pair.took(1);
    let again = Frame::Notify { seq: 1, payload: b"x".to_vec() };
    pair.target.handle_frame(pair.now, again);
    pair.exchange();
    assert_eq!(pair.took(1), []);
    assert_eq!(pair.frames, ["Notify", "NotifyAck", "NotifyAck"]);
}

#[test]
fn notifications_of_transfers_need_a_link_and_bare_ones_wait_for_it() {
    let mut pair = Pair::up();
    pair.cut();
    assert!(matches!(pair.notify(b"t", Some(1)), Err(CommandError::State { .. })));
    pair.notify(b"b", None).unwrap();
    assert_eq!(pair.credit().available(), 1000 - 65);
    assert_eq!(pair.initiator.poll(), None);
}

#[test]
fn reconnect_sends_bare_ones_again_and_drops_those_of_transfers() {
    let mut pair = Pair::up();
    pair.notify(b"arrives", None).unwrap();
    pair.carry(0);
    pair.notify(b"bare", None).unwrap();
    pair.notify(b"transfer", Some(9)).unwrap();
    pair.cut();
    let cause = LostCause::Channel(ChannelLoss::Broken);
    assert!(cause.may_reconnect());
    assert_eq!(pair.took(0), [Action::NotifyDropped { token: 9 }, Action::Lost(cause.clone())]);
    assert_eq!(lost(&pair.did[1]), &cause);
    // The application takes its time; the parked session keeps count.
    pair.target(Command::Drained { bytes: 71 }).unwrap();

    let mut next = Pair::new();
    let (sender, _) = pair.initiator.into_notify();
    let (_, receiver) = pair.target.into_notify();
    next.initiator = Session::initiator(
        next.now,
        config(who("prefill", 1), None, None),
        who("decode", 2),
        sender.unwrap(),
    );
    next.admit(receiver.unwrap());
    next.notify(b"early", None).unwrap();
    next.attach();
    let delivered: Vec<Action> =
        next.took(1).into_iter().filter(|action| matches!(action, Action::Deliver { .. })).collect();
    assert_eq!(
        delivered,
        [
            Action::Deliver { seq: 2, payload: b"bare".to_vec() },
            Action::Deliver { seq: 4, payload: b"early".to_vec() }
        ]
    );
    assert_eq!(next.credit().available(), 1000 - 68 - 69);
}

#[test]
fn revocations_are_carried_out_before_they_are_acknowledged() {
    let mut pair = Pair::up();
    let scope = RevokeScope::regions([RegionId(2)]);
    pair.target(Command::Revoke { epoch: 3, scope: scope.clone() }).unwrap();
    pair.exchange();
    assert_eq!(pair.took(0), [Action::Revoked { epoch: 3, scope }]);
    assert_eq!(pair.took(1), []);
    assert!(pair.initiator.acknowledged().is_revoked(RegionId(2)));
    assert!(!pair.initiator.acknowledged().may_run(3));
    pair.initiator(Command::Applied { epoch: 3 }).unwrap();
    assert!(pair.initiator.acknowledged().may_run(3));
    pair.exchange();
    assert_eq!(pair.took(1), [Action::RevokeAcked { epoch: 3 }]);

    assert_eq!(
        pair.target(Command::Revoke { epoch: 3, scope: RevokeScope::all() }),
        Err(CommandError::EpochOrder { epoch: 3, last: 3 })
    );
    // The other direction has its own epochs.
    pair.initiator(Command::Revoke { epoch: 1, scope: RevokeScope::ops([5]) }).unwrap();
    pair.exchange();
    pair.target(Command::Applied { epoch: 1 }).unwrap();
    pair.exchange();
    assert_eq!(pair.took(0), [Action::RevokeAcked { epoch: 1 }]);
}

#[test]
fn goodbye_lets_acknowledgements_through() {
    let mut pair = Pair::up();
    pair.notify(b"last words", Some(5)).unwrap();
    pair.initiator(Command::Close { reason: ByeReason::Disconnected, text: "by ".repeat(1000) }).unwrap();
    pair.carry(0);
    pair.carry(1);
    assert!(matches!(
        lost(&pair.did[1]),
        LostCause::Bye { reason: ByeReason::Disconnected, text } if text.len() == MAX_BYE_TEXT
    ));
    pair.initiator.channel_lost(ChannelLoss::Ended);
    pair.exchange();
    assert_eq!(
        pair.took(0),
        [Action::NotifyAcked { token: 5 }, Action::Lost(LostCause::Closed(ByeReason::Disconnected))]
    );
}

#[test]
fn goodbye_does_not_wait_for_ever() {
    let mut pair = Pair::up();
    pair.initiator(Command::Close { reason: ByeReason::Closed, text: String::new() }).unwrap();
    let deadline = pair.initiator.poll_timeout().unwrap();
    assert_eq!(deadline, pair.now + SECOND);
    pair.initiator.handle_timeout(deadline);
    pair.carry(0);
    assert_eq!(lost(&pair.did[0]), &LostCause::Closed(ByeReason::Closed));
}

#[test]
fn heartbeats_keep_an_idle_link_and_find_silence() {
    let mut pair = Pair::up_with(Some(3 * SECOND), 1000);
    for _ in 0..10 {
        pair.now += SECOND;
        pair.initiator.handle_timeout(pair.now);
        pair.target.handle_timeout(pair.now);
        pair.exchange();
    }
    assert_eq!(pair.took(0), []);
    assert_eq!(pair.took(1), []);
    assert!(pair.frames.contains(&"Pong"));

    // The target is stopped.
    let heard = pair.now;
    while pair.initiator.is_up() {
        pair.now = pair.initiator.poll_timeout().unwrap();
        pair.initiator.handle_timeout(pair.now);
    }
    assert_eq!(pair.now, heard + 3 * SECOND);
    pair.carry(0);
    assert_eq!(lost(&pair.did[0]), &LostCause::Silent);
}

#[test]
fn own_pause_is_not_the_peers_silence() {
    let mut pair = Pair::up_with(Some(3 * SECOND), 1000);
    pair.now += 60 * SECOND;
    pair.initiator.handle_timeout(pair.now);
    assert!(pair.initiator.is_up());
    pair.exchange();
    assert!(pair.initiator.is_up());
    // The answer came, so silence starts anew.
    assert_eq!(pair.initiator.poll_timeout(), Some(pair.now + SECOND));
}

#[test]
fn frames_that_may_not_come_now_end_the_session() {
    let notify = || Frame::Notify { seq: 1, payload: Vec::new() };
    let to_target = [
        Frame::NotifyAck { seq: 0 },
        Frame::Credit { consumed: 0 },
        Frame::Live(LiveRegions::default()),
        Frame::Ready,
        Frame::Proof([0; 32]),
        Frame::Welcome(crate::notify::Resume::default()),
        Frame::Refuse(Refusal::Busy),
        Frame::Pong { token: 1 },
        Frame::RevokeAck { epoch: 1 },
        Frame::RevokeAck { epoch: 0 },
    ];
    let to_initiator = [
        notify(),
        Frame::Ready,
        Frame::Live(LiveRegions::default()),
        Frame::NotifyAck { seq: 1 },
        Frame::Credit { consumed: 1 },
        Frame::Pong { token: 0 },
        Frame::RevokeAck { epoch: 1 },
    ];
    let cases = to_target.map(|frame| (1, frame)).into_iter();
    for (side, frame) in cases.chain(to_initiator.map(|frame| (0, frame))) {
        let mut pair = Pair::up();
        let name = frame.name();
        let session = if side == 0 { &mut pair.initiator } else { &mut pair.target };
        session.handle_frame(pair.now, frame);
        pair.exchange();
        let cause = lost(&pair.did[side]);
        assert!(matches!(cause, LostCause::Violation(_)), "{name}: {cause}");
        assert!(!cause.may_reconnect());
        assert!(
            matches!(lost(&pair.did[1 - side]), LostCause::Bye { reason: ByeReason::Violation, .. }),
            "{name}"
        );
    }

    let mut pair = Pair::new();
    pair.admit(NotifyReceiver::new(1000));
    for _ in 0..2 {
        pair.target.handle_frame(pair.now, Frame::Ready);
    }
    pair.exchange();
    assert!(matches!(lost(&pair.did[1]), LostCause::Violation(_)), "ready twice");

    let mut pair = Pair::new();
    pair.target.handle_frame(pair.now, notify());
    pair.exchange();
    assert_eq!(
        lost(&pair.did[1]),
        &LostCause::Violation(Violation::Unexpected {
            frame: "Notify",
            state: "waiting for the hello",
            role: Role::Target
        })
    );
}

#[test]
fn overrun_of_the_inbox_is_a_violation() {
    let mut pair = Pair::up_with(None, 100);
    let large = Frame::Notify { seq: 1, payload: vec![0; 37] };
    pair.target.handle_frame(pair.now, large);
    pair.exchange();
    assert_eq!(
        lost(&pair.did[1]),
        &LostCause::Violation(Violation::Notify(NotifyViolation::Overrun { seq: 1, window: 100 }))
    );
}

#[test]
fn unknown_frames_and_those_after_the_end_are_ignored() {
    let mut pair = Pair::up();
    pair.target.handle_frame(pair.now, Frame::Skipped { kind: 0x91 });
    assert!(pair.target.is_up());
    pair.cut();
    pair.took(1);
    pair.target.handle_frame(pair.now, Frame::Ready);
    pair.target.handle_timeout(pair.now + 100 * SECOND);
    pair.target.channel_lost(ChannelLoss::Died);
    pair.target.handle_malformed(FrameError::Unknown { kind: 99 });
    assert_eq!(pair.target.poll(), None);
}

#[test]
fn garbage_ends_the_session_with_a_goodbye() {
    let mut pair = Pair::up();
    let error = FrameError::Unknown { kind: 99 };
    pair.target.handle_malformed(error.clone());
    pair.exchange();
    assert_eq!(lost(&pair.did[1]), &LostCause::Violation(Violation::Frame(error)));
    let Action::Lost(LostCause::Bye { text, .. }) = pair.did[0].last().unwrap() else { panic!("no goodbye") };
    assert_eq!(text, "unknown frame type 0x63");
}

#[test]
fn commands_out_of_place_are_errors_and_change_nothing() {
    let mut pair = Pair::up();
    let now = pair.now;
    for command in [
        Command::Attached,
        Command::Refuse(Refusal::Busy),
        Command::Admit { receiver: NotifyReceiver::new(1), live: LiveRegions::default() },
        Command::Drained { bytes: 1 },
    ] {
        let error = pair.initiator.command(now, command).unwrap_err();
        assert!(matches!(error, CommandError::State { .. }), "{error}");
    }
    for command in [
        Command::Transport { bytes: vec![0; MAX_TRANSPORT_MESSAGE + 1], fds: 0 },
        Command::Transport { bytes: Vec::new(), fds: MAX_FRAME_FDS + 1 },
        Command::Revoke { epoch: 1, scope: RevokeScope::ops(vec![1; MAX_FRAME_IDS + 1]) },
    ] {
        assert_eq!(pair.initiator.command(now, command), Err(CommandError::TooLarge));
    }
    let reservation = pair.credit().reserve(vec![]).unwrap();
    assert!(pair.target(Command::Notify { reservation, token: None }).is_err());
    assert_eq!(pair.credit().available(), 1000);
    assert_eq!(pair.initiator.poll(), None);
    assert!(pair.initiator.is_up());
}
