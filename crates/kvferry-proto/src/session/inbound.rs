//! What each frame does, in the states in which it may come.

use std::time::Instant;

use super::heartbeat::Heartbeat;
use super::state::State;
use super::{Action, LostCause, Session, Violation};
use crate::frame::Frame;
use crate::notify::Arrival;
use crate::proof::Role;

impl Session {
    pub(super) fn try_frame(&mut self, now: Instant, frame: Frame) -> Result<(), Violation> {
        let name = frame.name();
        let (state, role) = (self.state, self.role);
        match (frame, state) {
            (Frame::Skipped { .. }, _) => {}
            (Frame::Bye { .. }, State::Closing { reason }) => {
                self.lose(LostCause::Closed(reason));
            }
            (Frame::Bye { reason, text }, _) => self.lose(LostCause::Bye { reason, text }),
            (Frame::NotifyAck { seq }, State::Up | State::Closing { .. }) if role == Role::Initiator => {
                self.on_notify_ack(seq)?;
            }
            (Frame::RevokeAck { epoch }, State::Attaching { .. } | State::Up | State::Closing { .. }) => {
                self.on_revoke_ack(epoch)?;
            }
            // We have said that nothing follows; the peer did not know yet.
            (_, State::Closing { .. }) => {}

            (
                Frame::Refuse(refusal),
                State::AwaitChallenge | State::AwaitWelcome | State::AwaitProof { .. },
            ) => self.lose(LostCause::Refused(refusal)),
            (Frame::Hello(hello), State::AwaitHello) => self.on_hello(hello)?,
            (Frame::Challenge(challenge), State::AwaitChallenge) => self.on_challenge(&challenge),
            (Frame::Proof(proof), State::AwaitProof { initiator_nonce }) => {
                self.on_proof(&initiator_nonce, &proof);
            }
            (Frame::Welcome(resume), State::AwaitWelcome) => self.on_welcome(resume)?,

            (Frame::Live(live), State::Attaching { there: false, .. }) if role == Role::Initiator => {
                self.actions.push_back(Action::Live(live));
            }
            (Frame::Ready, State::Attaching { here, there: false }) => {
                self.attached(now, here, true);
            }
            (Frame::Transport { bytes, fds }, _) if state.is_open() => {
                self.actions.push_back(Action::Transport { bytes, fds });
            }
            (Frame::Revoke { epoch, scope }, _) if state.is_open() => {
                self.acknowledged.on_revoke(epoch, &scope)?;
                self.actions.push_back(Action::Revoked { epoch, scope });
            }
            (Frame::Ping { token }, _) if state.is_open() => self.send(Frame::Pong { token }),
            (Frame::Pong { token }, _) if state.is_open() => self.on_pong(token)?,
            (Frame::Credit { consumed }, _) if state.is_open() && role == Role::Initiator => {
                if let Some(sender) = &mut self.sender {
                    sender.on_credit(consumed)?;
                }
            }
            (Frame::Notify { seq, payload }, State::Up) if role == Role::Target => {
                self.on_notify(seq, payload)?;
            }
            _ => {
                return Err(Violation::Unexpected { frame: name, state: state.name(), role });
            }
        }
        Ok(())
    }

    fn on_notify(&mut self, seq: u64, payload: Vec<u8>) -> Result<(), Violation> {
        let Some(receiver) = &mut self.receiver else {
            return Ok(());
        };
        if receiver.accept(seq, payload.len())? == Arrival::New {
            self.actions.push_back(Action::Deliver { seq, payload });
        }
        self.send(Frame::NotifyAck { seq });
        Ok(())
    }

    fn on_notify_ack(&mut self, seq: u64) -> Result<(), Violation> {
        let Some(sender) = &mut self.sender else {
            return Ok(());
        };
        for token in sender.on_ack(seq)? {
            self.actions.push_back(Action::NotifyAcked { token });
        }
        Ok(())
    }

    fn on_revoke_ack(&mut self, epoch: u64) -> Result<(), Violation> {
        if epoch <= self.revoke_acked || epoch > self.revoked {
            return Err(Violation::RevokeAck { epoch, acked: self.revoke_acked, sent: self.revoked });
        }
        self.revoke_acked = epoch;
        self.actions.push_back(Action::RevokeAcked { epoch });
        Ok(())
    }

    fn on_pong(&mut self, token: u64) -> Result<(), Violation> {
        let sent = self.heartbeat.as_ref().map_or(0, Heartbeat::last_token);
        if token == 0 || token > sent {
            return Err(Violation::Pong { token });
        }
        Ok(())
    }
}
