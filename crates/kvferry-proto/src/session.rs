//! The control channel of one directed link: handshake, attachment, notifications, revocations, heartbeats, end.
//!
//! ```text
//!   initiator                                        target
//!     | Hello ------------------------------------------> |
//!     | <---------------------------- Challenge (proof) | |
//!     | Proof ------------------------------------------> |  Proven; the caller admits or refuses
//!     | <------------------------------- Welcome, Live*   |
//!     | <== Transport, Revoke, RevokeAck, ... both ways ==> |  AttachTransport
//!     | Ready <-----------------------------------> Ready |  Up
//!     | Notify ->   <- NotifyAck, Credit                  |
//!     | Bye either way                                    |  Lost
//! ```
//! A session lives as long as one connection. What outlives it ([`NotifySender`], [`NotifyReceiver`]) is handed in and
//! comes back by [`Session::into_notify`].

mod action;
mod cause;
mod command;
mod handshake;
mod heartbeat;
mod inbound;
mod state;

#[cfg(test)]
mod tests;

pub use self::action::Action;
pub use self::cause::{ChannelLoss, LostCause, Violation};
pub use self::command::{Command, CommandError};

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use self::heartbeat::{Beat, Heartbeat};
use self::state::State;
use crate::frame::{
    ByeReason, Frame, FrameError, Hello, MAX_BYE_TEXT, MAX_FRAME_FDS, MAX_FRAME_IDS, MAX_TRANSPORT_MESSAGE,
    Nonce, PROTOCOL_VERSION,
};
use crate::notify::{NotifyReceiver, NotifySender};
use crate::peers::Identity;
use crate::proof::{ProofKey, Role};
use crate::revoke::{Acknowledged, RevokeScope};
use crate::stream::ChannelKey;

/// Longer than any process runs; keeps sums with longer times from overflowing.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// What a session needs to know of its own side.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// This agent.
    pub own: Identity,
    /// The key of the *target's* capability: a target derives it from its own secret, an initiator from the secret in
    /// the metadata that it loaded.
    pub key: ProofKey,
    /// Whether a token went into the key.
    pub token_in_force: bool,
    /// Fresh random bytes, never used before.
    pub nonce: Nonce,
    /// How long a connection may take until it is up.
    pub handshake_timeout: Duration,
    /// How long a closing side waits for the peer to close as well.
    pub close_timeout: Duration,
    /// How long a peer may be silent; none where silence is no sign of death.
    pub silence_timeout: Option<Duration>,
}

/// One end of the control channel of one directed link. It does no I/O: feed it frames, commands and the passing of
/// time, and carry out its actions.
///
/// After each call that takes `&mut self` (but [`poll`](Self::poll)) call `poll` until it returns none, then ask
/// [`poll_timeout`](Self::poll_timeout) anew. [`Action::Lost`] is the last action and comes exactly once; after it, all
/// inputs are ignored.
///
/// The caller bounds what it buffers for sending: a peer that sends and never reads makes a session answer without end.
#[derive(Debug)]
pub struct Session {
    role: Role,
    config: SessionConfig,
    /// The other side; a target learns it from the Hello, and may trust it from [`Action::Proven`] on.
    peer: Option<Identity>,
    state: State,
    channel_key: Option<ChannelKey>,
    /// When the handshake or the closing must be over.
    deadline: Instant,
    heartbeat: Option<Heartbeat>,
    sender: Option<NotifySender>,
    receiver: Option<NotifyReceiver>,
    acknowledged: Acknowledged,
    /// Epochs of the last revocation sent, and of the last that was acknowledged.
    revoked: u64,
    revoke_acked: u64,
    actions: VecDeque<Action>,
}

impl Session {
    /// The side that opened the connection, to reach `peer`. `sender` is new, or what an earlier connection to the same
    /// incarnation left. Poll at once: the Hello is due.
    pub fn initiator(now: Instant, config: SessionConfig, peer: Identity, sender: NotifySender) -> Self {
        let hello = Hello {
            version: PROTOCOL_VERSION,
            name: config.own.name.clone(),
            incarnation: config.own.incarnation,
            target: peer.incarnation,
            nonce: config.nonce,
            token_in_force: config.token_in_force,
        };
        let mut session = Self::new(now, config, Role::Initiator, State::AwaitChallenge);
        session.peer = Some(peer);
        session.sender = Some(sender);
        session.send(Frame::Hello(hello));
        session
    }

    /// The side that accepted the connection. There is nothing to poll but the timeout.
    pub fn target(now: Instant, config: SessionConfig) -> Self {
        Self::new(now, config, Role::Target, State::AwaitHello)
    }

    fn new(now: Instant, mut config: SessionConfig, role: Role, state: State) -> Self {
        config.handshake_timeout = config.handshake_timeout.min(FOREVER);
        config.close_timeout = config.close_timeout.min(FOREVER);
        config.silence_timeout = config.silence_timeout.map(|silence| silence.min(FOREVER));
        Self {
            role,
            deadline: now + config.handshake_timeout,
            config,
            peer: None,
            state,
            channel_key: None,
            heartbeat: None,
            sender: None,
            receiver: None,
            acknowledged: Acknowledged::new(),
            revoked: 0,
            revoke_acked: 0,
            actions: VecDeque::new(),
        }
    }

    /// The next thing to do, in order.
    pub fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) if nothing else happens.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Lost => None,
            State::Up => self.heartbeat.as_ref().map(Heartbeat::next),
            _ => Some(self.deadline),
        }
    }

    /// A frame came in. Poll afterwards. A frame that is illegal here and now ends the session with
    /// [`LostCause::Violation`].
    pub fn handle_frame(&mut self, now: Instant, frame: Frame) {
        if self.state == State::Lost {
            return;
        }
        if let Some(heartbeat) = &mut self.heartbeat {
            heartbeat.heard(now);
        }
        if let Err(violation) = self.try_frame(now, frame) {
            self.violated(violation);
        }
    }

    /// The bytes that came in are no frames. Poll afterwards; the session is over.
    pub fn handle_malformed(&mut self, error: FrameError) {
        if self.state != State::Lost {
            self.violated(Violation::Frame(error));
        }
    }

    /// Time has passed. Poll afterwards. Harmless when called early; read what has come in before calling it, so that a
    /// process that was stopped does not take its own pause for the peer's.
    pub fn handle_timeout(&mut self, now: Instant) {
        match self.state {
            State::Lost => {}
            State::Up => match self.heartbeat.as_mut().map(|beat| beat.on_time(now)) {
                Some(Beat::Ping(token)) => self.send(Frame::Ping { token }),
                Some(Beat::Silent) => self.lose(LostCause::Silent),
                Some(Beat::Wait) | None => {}
            },
            State::Closing { reason } if now >= self.deadline => {
                self.lose(LostCause::Closed(reason));
            }
            _ if now >= self.deadline => self.lose(LostCause::HandshakeTimeout),
            _ => {}
        }
    }

    /// The connection is gone, or the caller gives it up. Poll afterwards; the session is over.
    pub fn channel_lost(&mut self, loss: ChannelLoss) {
        match self.state {
            State::Lost => {}
            State::Closing { reason } => self.lose(LostCause::Closed(reason)),
            _ => self.lose(LostCause::Channel(loss)),
        }
    }

    /// The caller wants something. Poll afterwards.
    ///
    /// # Errors
    /// It is not possible in this state or role, or breaks a limit; nothing is changed.
    pub fn command(&mut self, now: Instant, command: Command) -> Result<(), CommandError> {
        let wrong_state = CommandError::State { command: command.name(), state: self.state.name() };
        match (command, self.state) {
            (Command::Admit { receiver, live }, State::AwaitAdmission) => {
                self.admit(receiver, live);
                Ok(())
            }
            (Command::Refuse(refusal), State::AwaitAdmission) => {
                self.reject(refusal);
                Ok(())
            }
            (Command::Attached, State::Attaching { here: false, there }) => {
                self.send(Frame::Ready);
                self.attached(now, true, there);
                Ok(())
            }
            (Command::Transport { bytes, .. }, _) if bytes.len() > MAX_TRANSPORT_MESSAGE => {
                Err(CommandError::TooLarge)
            }
            (Command::Transport { fds, .. }, _) if fds > MAX_FRAME_FDS => Err(CommandError::TooLarge),
            (Command::Transport { bytes, fds }, state) if state.is_open() => {
                self.send(Frame::Transport { bytes, fds });
                Ok(())
            }
            (Command::Notify { reservation, token }, state) => {
                let Some(sender) = &mut self.sender else {
                    return Err(wrong_state);
                };
                // A bare one waits in the sender for this connection or the next.
                if token.is_some() && state != State::Up {
                    return Err(wrong_state);
                }
                let (_, frame) = sender.issue(reservation, token)?;
                if state == State::Up {
                    self.send(frame);
                }
                Ok(())
            }
            (Command::Drained { bytes }, state) => {
                let Some(receiver) = &mut self.receiver else {
                    return Err(wrong_state);
                };
                if let Some(credit) = receiver.drained(bytes)
                    && state.is_open()
                {
                    self.send(credit);
                }
                Ok(())
            }
            (Command::Revoke { scope, .. }, _) if scope.len() > MAX_FRAME_IDS => Err(CommandError::TooLarge),
            (Command::Revoke { epoch, scope }, state) if state.is_open() => self.revoke(epoch, scope),
            (Command::Applied { epoch }, state) => {
                if let Some(ack) = self.acknowledged.applied(epoch)
                    && state.is_open()
                {
                    self.send(ack);
                }
                Ok(())
            }
            (Command::Close { .. }, State::Closing { .. } | State::Lost) => Ok(()),
            (Command::Close { reason, text }, _) => {
                self.send(bye(reason, text));
                self.state = State::Closing { reason };
                self.deadline = now + self.config.close_timeout;
                Ok(())
            }
            _ => Err(wrong_state),
        }
    }

    /// Which end this is.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The other side: for an initiator whom it wanted to reach, for a target who proved itself; before that none.
    pub fn peer(&self) -> Option<&Identity> {
        match self.state {
            State::AwaitProof { .. } => None,
            _ => self.peer.as_ref(),
        }
    }

    /// What both ends share once they are proven: the key of data streams that belong to this channel.
    pub fn channel_key(&self) -> Option<&ChannelKey> {
        self.channel_key.as_ref()
    }

    /// Whether both transports are attached and the link is not over.
    pub fn is_up(&self) -> bool {
        self.state == State::Up
    }

    /// What the peer has revoked of its memory on this connection.
    pub fn acknowledged(&self) -> &Acknowledged {
        &self.acknowledged
    }

    /// What outlives the connection: an initiator's sender, an admitted initiator's receiver. Call it after
    /// [`Action::Lost`]; a session that is dropped or taken apart before loses what was under way.
    pub fn into_notify(self) -> (Option<NotifySender>, Option<NotifyReceiver>) {
        (self.sender, self.receiver)
    }

    fn revoke(&mut self, epoch: u64, scope: RevokeScope) -> Result<(), CommandError> {
        if epoch <= self.revoked {
            return Err(CommandError::EpochOrder { epoch, last: self.revoked });
        }
        self.revoked = epoch;
        self.send(Frame::Revoke { epoch, scope });
        Ok(())
    }

    fn attached(&mut self, now: Instant, here: bool, there: bool) {
        if !(here && there) {
            self.state = State::Attaching { here, there };
            return;
        }
        self.state = State::Up;
        let silence = self.config.silence_timeout;
        self.heartbeat = silence.map(|silence| Heartbeat::new(now, silence));
        self.actions.push_back(Action::Up);
        for frame in self.sender.iter().flat_map(NotifySender::resend) {
            self.actions.push_back(Action::Send(frame));
        }
    }

    fn send(&mut self, frame: Frame) {
        self.actions.push_back(Action::Send(frame));
    }

    fn violated(&mut self, violation: Violation) {
        if !matches!(self.state, State::Closing { .. }) {
            self.send(bye(ByeReason::Violation, violation.to_string()));
        }
        self.lose(LostCause::Violation(violation));
    }

    fn lose(&mut self, cause: LostCause) {
        self.state = State::Lost;
        if let Some(sender) = &mut self.sender {
            for token in sender.on_channel_lost() {
                self.actions.push_back(Action::NotifyDropped { token });
            }
        }
        self.actions.push_back(Action::Lost(cause));
    }
}

fn bye(reason: ByeReason, mut text: String) -> Frame {
    text.truncate(text.floor_char_boundary(MAX_BYE_TEXT));
    Frame::Bye { reason, text }
}
