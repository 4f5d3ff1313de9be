//! Fuzzing the control channel: the reader of frames, and sessions that are fed with anything.

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use crate::frame::{
    ByeReason, FRAME_HEADER, Frame, FrameError, FrameReader, LiveRegions, MAX_FRAME_BODY, Refusal,
};
use crate::notify::{NotifyCredit, NotifyReceiver, NotifySender};
use crate::peers::Identity;
use crate::proof::ProofKey;
use crate::region::{Incarnation, RegionId};
use crate::revoke::RevokeScope;
use crate::session::{Action, ChannelLoss, Command, Session, SessionConfig};

/// Room for notifications in fuzzed sessions: little, so that its end is reached.
const WINDOW: u64 = 400;

/// Reads `data`, but for its first two bytes, as a stream of frames, in pieces whose lengths those two give and whole.
///
/// # Panics
/// The frames depend on the pieces, more is held than one frame, or a frame is not the same after it is written and
/// read again.
pub fn frames(data: &[u8]) {
    let Some(([a, b], stream)) = data.split_first_chunk() else {
        return;
    };
    let whole = read(stream, [stream.len().max(1); 2]);
    assert_eq!(read(stream, [usize::from(*a) + 1, usize::from(*b) * 97 + 1]), whole);
    for frame in &whole.0 {
        let mut bytes = Vec::new();
        frame.encode_into(&mut bytes).expect("what was read can be written");
        assert_eq!(read(&bytes, [bytes.len(); 2]), (vec![frame.clone()], None));
    }
}

/// Reads a stream in pieces of alternating lengths.
fn read(mut stream: &[u8], lengths: [usize; 2]) -> (Vec<Frame>, Option<FrameError>) {
    let mut reader = FrameReader::new();
    let mut frames = Vec::new();
    for length in lengths.into_iter().cycle() {
        if stream.is_empty() {
            break;
        }
        let (mut piece, rest) = stream.split_at(length.min(stream.len()));
        stream = rest;
        while !piece.is_empty() {
            let taken = reader.push(piece);
            assert!(taken > 0, "an emptied reader takes no more");
            assert!(reader.held() <= FRAME_HEADER + MAX_FRAME_BODY);
            piece = &piece[taken..];
            loop {
                match reader.pop() {
                    Ok(Some(frame)) => frames.push(frame),
                    Ok(None) => break,
                    Err(error) => return (frames, Some(error)),
                }
            }
        }
    }
    (frames, None)
}

/// Runs an initiator and a target that talk to each other, while `data` decides who is served when, slips frames in,
/// gives commands, lets time pass and breaks the connection.
///
/// # Panics
/// A session panics, acts after its end, or answers one input with more than that can cause.
pub fn session(data: &[u8]) {
    let mut pair = Pair::new();
    let mut script = Script(data);
    while let Some(op) = script.byte() {
        let side = usize::from(op & 1);
        match (op >> 1) % 8 {
            0..3 => pair.carry(side),
            3 => pair.inject(side, &mut script),
            4 | 5 => pair.command(side, &mut script),
            6 => {
                pair.now += Duration::from_millis(u64::from(script.byte().unwrap_or(0)) * 50);
                pair.sessions[side].handle_timeout(pair.now);
                pair.collect(side, 1);
            }
            _ => {
                if script.byte() == Some(0) {
                    pair.sessions[side].channel_lost(ChannelLoss::Broken);
                    pair.collect(side, 1);
                }
            }
        }
    }
}

/// The bytes that are left.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> u64 {
        u64::from(self.byte().unwrap_or(0))
    }

    fn bytes(&mut self, count: usize) -> &[u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

struct Pair {
    now: Instant,
    sessions: [Session; 2],
    /// Frames on the way to each side.
    wire: [Vec<Frame>; 2],
    lost: [bool; 2],
    /// What each session may have stored up: bare notifications that it sends when it comes up.
    stored: [usize; 2],
    credit: NotifyCredit,
}

impl Pair {
    fn new() -> Self {
        let now = Instant::now();
        let who = |life: u8| Identity { name: format!("agent-{life}"), incarnation: Incarnation([life; 16]) };
        let config = |life: u8| SessionConfig {
            own: who(life),
            key: ProofKey::derive(&[3; 32], None),
            token_in_force: false,
            nonce: [life; 32],
            handshake_timeout: Duration::from_secs(5),
            close_timeout: Duration::from_secs(1),
            silence_timeout: Some(Duration::from_secs(3)),
        };
        let sender = NotifySender::new();
        let credit = sender.credit();
        let initiator = Session::initiator(now, config(1), who(2), sender);
        let mut pair = Self {
            now,
            sessions: [initiator, Session::target(now, config(2))],
            wire: Default::default(),
            lost: [false; 2],
            stored: [0; 2],
            credit,
        };
        pair.collect(0, 0);
        pair
    }

    /// Delivers the oldest frame that is on the way to `side`.
    fn carry(&mut self, side: usize) {
        if !self.wire[side].is_empty() {
            let frame = self.wire[side].remove(0);
            self.sessions[side].handle_frame(self.now, frame);
            self.collect(side, 1);
        }
    }

    /// Delivers a frame that the peer never sent.
    fn inject(&mut self, side: usize, script: &mut Script<'_>) {
        let (kind, len) = (script.byte().unwrap_or(0), script.byte().unwrap_or(0));
        let body = script.bytes(usize::from(len));
        let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
        bytes.extend([kind % 20, 0, 0, 0]);
        bytes.extend(body);
        let (frames, error) = read(&bytes, [bytes.len(); 2]);
        for frame in frames {
            self.sessions[side].handle_frame(self.now, frame);
        }
        if let Some(error) = error {
            self.sessions[side].handle_malformed(error);
        }
        self.collect(side, 1);
    }

    fn command(&mut self, side: usize, script: &mut Script<'_>) {
        let command = match script.number() % 10 {
            0 | 1 => Command::Attached,
            2 => Command::Admit {
                receiver: NotifyReceiver::new(WINDOW),
                live: LiveRegions::new(script.number(), vec![RegionId(script.number())]),
            },
            3 => Command::Refuse(Refusal::Busy),
            4 => Command::Transport { bytes: script.bytes(3).to_vec(), fds: script.byte().unwrap_or(0) },
            5 => {
                let len = script.number() as usize;
                let Ok(reservation) = self.credit.reserve(vec![0; len]) else {
                    return;
                };
                self.stored[0] += 1;
                let token = script.byte().filter(|byte| *byte < 128).map(u64::from);
                Command::Notify { reservation, token }
            }
            6 => Command::Drained { bytes: script.number() },
            7 => Command::Revoke { epoch: script.number(), scope: RevokeScope::ops([script.number()]) },
            8 => Command::Applied { epoch: script.number() },
            _ => Command::Close { reason: ByeReason::Closed, text: "x".repeat(script.number() as usize * 9) },
        };
        // Most are out of place, and the session says so.
        let _ = self.sessions[side].command(self.now, command);
        self.collect(side, 1);
    }

    /// Takes what the session wants, as the consequence of `inputs`.
    fn collect(&mut self, side: usize, inputs: usize) {
        // Send and act, twice, and what was stored up.
        let most = 4 + inputs + 2 * self.stored[0];
        let mut count = 0;
        while let Some(action) = self.sessions[side].poll() {
            count += 1;
            assert!(count <= most, "{count} actions");
            assert!(!self.lost[side], "{action:?} after the end");
            match action {
                Action::Send(frame) => {
                    let mut bytes = Vec::new();
                    frame.encode_into(&mut bytes).expect("sessions make frames that can be sent");
                    self.wire[1 - side].push(frame);
                }
                Action::Proven { .. } => {
                    let receiver = NotifyReceiver::new(WINDOW);
                    let live = LiveRegions::default();
                    let command = Command::Admit { receiver, live };
                    self.sessions[side].command(self.now, command).expect("it asked for that");
                }
                Action::AttachTransport => {
                    self.sessions[side].command(self.now, Command::Attached).expect("it asked for that");
                }
                Action::Lost(_) => self.lost[side] = true,
                _ => {}
            }
        }
        if self.lost[side] {
            assert_eq!(self.sessions[side].poll_timeout(), None);
        }
    }
}
