//! From the first frame to the attachment.

use super::{Action, LostCause, Session, State, Violation};
use crate::frame::{Challenge, Frame, Hello, LiveRegions, Nonce, PROTOCOL_VERSION, Refusal};
use crate::notify::{NotifyReceiver, Resume};
use crate::peers::{Identity, is_agent_name};
use crate::proof::{Role, Transcript};

impl Session {
    pub(super) fn on_hello(&mut self, hello: Hello) -> Result<(), Violation> {
        if hello.version != PROTOCOL_VERSION {
            self.reject(Refusal::Version { oldest: PROTOCOL_VERSION, newest: PROTOCOL_VERSION });
            return Ok(());
        }
        if !is_agent_name(&hello.name) {
            let len = hello.name.len();
            return Err(Violation::Name { len });
        }
        let own = &self.config.own;
        if hello.target != own.incarnation {
            let found = own.incarnation;
            self.reject(Refusal::WrongIncarnation { found });
            return Ok(());
        }
        let peer = Identity { name: hello.name, incarnation: hello.incarnation };
        let transcript = Transcript {
            initiator: &peer,
            target: own,
            initiator_nonce: &hello.nonce,
            target_nonce: &self.config.nonce,
        };
        let challenge = Challenge {
            name: own.name.clone(),
            incarnation: own.incarnation,
            nonce: self.config.nonce,
            proof: transcript.prove(&self.config.key, Role::Target),
            token_in_force: self.config.token_in_force,
        };
        self.peer = Some(peer);
        self.state = State::AwaitProof { initiator_nonce: hello.nonce };
        self.send(Frame::Challenge(challenge));
        Ok(())
    }

    pub(super) fn on_challenge(&mut self, challenge: &Challenge) {
        let Some(peer) = &self.peer else {
            return;
        };
        if challenge.incarnation != peer.incarnation || challenge.name != peer.name {
            self.reject(Refusal::WrongIncarnation { found: challenge.incarnation });
            return;
        }
        let transcript = Transcript {
            initiator: &self.config.own,
            target: peer,
            initiator_nonce: &self.config.nonce,
            target_nonce: &challenge.nonce,
        };
        if !transcript.verify(&self.config.key, Role::Target, &challenge.proof) {
            let token_in_force = self.config.token_in_force;
            self.send(Frame::Refuse(Refusal::Unauthorized { token_in_force }));
            // What helps the user here is whether the *other* side has a token.
            self.lose(LostCause::Rejected(Refusal::Unauthorized {
                token_in_force: challenge.token_in_force,
            }));
            return;
        }
        let proof = transcript.prove(&self.config.key, Role::Initiator);
        self.channel_key = Some(transcript.channel_key(&self.config.key));
        self.state = State::AwaitWelcome;
        self.send(Frame::Proof(proof));
    }

    pub(super) fn on_proof(&mut self, initiator_nonce: &Nonce, proof: &[u8; 32]) {
        let Some(peer) = self.peer.clone() else {
            return;
        };
        let transcript = Transcript {
            initiator: &peer,
            target: &self.config.own,
            initiator_nonce,
            target_nonce: &self.config.nonce,
        };
        if !transcript.verify(&self.config.key, Role::Initiator, proof) {
            let token_in_force = self.config.token_in_force;
            self.reject(Refusal::Unauthorized { token_in_force });
            return;
        }
        self.channel_key = Some(transcript.channel_key(&self.config.key));
        self.state = State::AwaitAdmission;
        self.actions.push_back(Action::Proven { peer });
    }

    pub(super) fn admit(&mut self, mut receiver: NotifyReceiver, live: LiveRegions) {
        self.send(Frame::Welcome(receiver.resume()));
        self.receiver = Some(receiver);
        for piece in live.split() {
            self.send(Frame::Live(piece));
        }
        self.begin_attach();
    }

    pub(super) fn on_welcome(&mut self, resume: Resume) -> Result<(), Violation> {
        if let Some(sender) = &mut self.sender {
            sender.on_resume(resume)?;
        }
        self.begin_attach();
        Ok(())
    }

    pub(super) fn reject(&mut self, refusal: Refusal) {
        self.send(Frame::Refuse(refusal));
        self.lose(LostCause::Rejected(refusal));
    }

    fn begin_attach(&mut self) {
        self.state = State::Attaching { here: false, there: false };
        self.actions.push_back(Action::AttachTransport);
    }
}
