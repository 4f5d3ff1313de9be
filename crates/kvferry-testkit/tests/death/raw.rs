//! The two ends of a control channel without an engine, which stop where a test wants them to.

use std::{
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use kvferry_proto::{
    Action, Blob, Capability, Endpoint, Frame, FrameReader, Identity, Incarnation, NotifySender, ProofKey,
    Secret, Session, SessionConfig,
};
use kvferry_testkit::harness::{Chance, PATIENCE, eventually, now_ns};

/// How far a handshake goes before it stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Connected; nothing was said.
    Silent,
    /// Half a frame was sent.
    Half,
    /// Our first frame is out.
    First,
    /// Ours and theirs are proven; the transports were to attach.
    Proven,
}

pub(crate) const STAGES: [Stage; 4] = [Stage::Silent, Stage::Half, Stage::First, Stage::Proven];

/// One end.
pub(crate) struct Raw {
    fd: OwnedFd,
    session: Session,
    reader: FrameReader,
    stage: Stage,
}

impl Raw {
    /// Connects to an agent by its metadata and goes as far as `stage`.
    pub(crate) fn connect(metadata: &str, stage: Stage) -> Self {
        let blob = Blob::decode(&from_hex(metadata)).unwrap();
        let fd = blob.endpoints.iter().find_map(|endpoint| match endpoint {
            Endpoint::AbstractUnix(name) => kvferry_sys::connect_abstract(name).ok(),
            _ => None,
        });
        let config = config(&identity("raw"), &blob.capability.unwrap().secret);
        let session = Session::initiator(Instant::now(), config, blob.identity, NotifySender::new());
        let mut raw =
            Self { fd: fd.expect("an agent that listens"), session, reader: FrameReader::new(), stage };
        raw.go();
        raw
    }

    /// Goes on until the stage is reached, or the other end stops.
    fn go(&mut self) {
        if self.stage == Stage::Silent {
            return;
        }
        let mut over = false;
        assert!(
            eventually(PATIENCE, || {
                while let Some(action) = self.session.poll() {
                    match action {
                        Action::Send(frame) => {
                            self.send(&frame);
                            over |= matches!(self.stage, Stage::Half | Stage::First);
                        }
                        Action::AttachTransport | Action::Proven { .. } | Action::Lost(_) => over = true,
                        _ => {}
                    }
                    if over {
                        return true;
                    }
                }
                self.receive();
                over
            }),
            "a handshake does not get to {:?}",
            self.stage
        );
    }

    fn send(&self, frame: &Frame) {
        let mut bytes = Vec::new();
        frame.encode_into(&mut bytes).unwrap();
        if self.stage == Stage::Half {
            bytes.truncate(bytes.len() / 2);
        }
        // Small enough for any socket's buffer.
        let _ = kvferry_sys::send_with_fds(&self.fd, &bytes, &[]);
    }

    fn receive(&mut self) {
        let mut buffer = [0; 4096];
        let Ok(n) = kvferry_sys::recv_with_fds(&self.fd, &mut buffer, &mut Vec::new()) else { return };
        let mut rest = &buffer[..n];
        while !rest.is_empty() {
            rest = &rest[self.reader.push(rest)..];
            while let Ok(Some(frame)) = self.reader.pop() {
                self.session.handle_frame(Instant::now(), frame);
            }
        }
    }

    /// Whether the other end has closed.
    pub(crate) fn is_closed(&self) -> bool {
        let mut buffer = [0; 4096];
        loop {
            match kvferry_sys::recv_with_fds(&self.fd, &mut buffer, &mut Vec::new()) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
            }
        }
    }
}

/// Where an agent thinks that a peer listens.
pub(crate) struct RawListener {
    fd: OwnedFd,
    own: Identity,
    secret: Secret,
    /// What the agent loads.
    pub(crate) metadata: String,
}

impl RawListener {
    pub(crate) fn new(name: &str) -> Self {
        let own = identity(name);
        let socket = format!("kvferry-raw-{}-{:x}", std::process::id(), now_ns()).into_bytes();
        let secret = Secret([7; 32]);
        let blob = Blob {
            identity: own.clone(),
            generation: 1,
            partial: false,
            host: None,
            endpoints: vec![Endpoint::AbstractUnix(socket.clone())],
            capability: Some(Capability { secret: secret.clone(), token: false }),
            regions: Vec::new(),
        };
        let metadata = blob.encode().unwrap().iter().map(|b| format!("{b:02x}")).collect();
        Self { fd: kvferry_sys::listen_abstract(&socket).unwrap(), own, secret, metadata }
    }

    /// Accepts the agent and goes as far as `stage`.
    pub(crate) fn accept(&self, stage: Stage) -> Raw {
        let mut accepted = None;
        assert!(eventually(PATIENCE, || {
            accepted = kvferry_sys::accept(&self.fd).ok();
            accepted.is_some()
        }));
        let session = Session::target(Instant::now(), config(&self.own, &self.secret));
        let mut raw = Raw { fd: accepted.unwrap(), session, reader: FrameReader::new(), stage };
        raw.go();
        raw
    }
}

fn identity(name: &str) -> Identity {
    let mut chance = Chance::new(now_ns());
    let halves = [chance.next_u64(), chance.next_u64()];
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&halves[0].to_ne_bytes());
    bytes[8..].copy_from_slice(&halves[1].to_ne_bytes());
    Identity { name: name.into(), incarnation: Incarnation(bytes) }
}

fn config(own: &Identity, secret: &Secret) -> SessionConfig {
    let mut nonce = [0; 32];
    nonce[..8].copy_from_slice(&now_ns().to_ne_bytes());
    SessionConfig {
        own: own.clone(),
        key: ProofKey::derive(&secret.0, None),
        token_in_force: false,
        nonce,
        handshake_timeout: PATIENCE,
        close_timeout: Duration::from_millis(100),
        silence_timeout: None,
    }
}

fn from_hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}
