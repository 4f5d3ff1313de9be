//! Bodies of frames: postcard, with bounds checked before anything is allocated.

use std::fmt;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{
    ByeReason, Challenge, Frame, FrameError, Header, Hello, LiveRegions, MAX_BYE_TEXT, MAX_FRAME_IDS,
    MAX_TRANSPORT_MESSAGE, Nonce, Refusal,
};
use crate::notify::MAX_NOTIFICATION;
use crate::region::{Incarnation, RegionId};
use crate::revoke::RevokeScope;

const HELLO: u8 = 1;
const TRANSPORT: u8 = 7;
const BYE: u8 = 16;

pub(super) fn is_known(kind: u8) -> bool {
    (HELLO..=BYE).contains(&kind)
}

pub(super) fn carries_fds(kind: u8) -> bool {
    kind == TRANSPORT
}

pub(super) fn name(kind: u8) -> &'static str {
    match kind {
        1 => "Hello",
        2 => "Challenge",
        3 => "Proof",
        4 => "Welcome",
        5 => "Refuse",
        6 => "Live",
        7 => "Transport",
        8 => "Ready",
        9 => "Notify",
        10 => "NotifyAck",
        11 => "Credit",
        12 => "Revoke",
        13 => "RevokeAck",
        14 => "Ping",
        15 => "Pong",
        16 => "Bye",
        _ => "unknown",
    }
}

pub(super) fn write(frame: &Frame, out: &mut Vec<u8>) -> Result<(), FrameError> {
    let too_large = |len| Err(FrameError::TooLarge { len });
    match frame {
        Frame::Hello(hello) => put(
            out,
            &HelloBody {
                version: hello.version,
                name: &hello.name,
                incarnation: hello.incarnation,
                target: hello.target,
                nonce: hello.nonce,
                token_in_force: hello.token_in_force,
            },
        ),
        Frame::Challenge(challenge) => put(
            out,
            &ChallengeBody {
                name: &challenge.name,
                incarnation: challenge.incarnation,
                nonce: challenge.nonce,
                proof: challenge.proof,
                token_in_force: challenge.token_in_force,
            },
        ),
        Frame::Proof(proof) => put(out, proof),
        Frame::Welcome(resume) => put(out, resume),
        Frame::Refuse(refusal) => put_refusal(out, refusal),
        Frame::Live(live) if !live.is_well_formed() => malformed(frame.kind()),
        Frame::Live(live) => put(out, &(live.from, live.below, IdsRef(&live.ids))),
        Frame::Transport { bytes, .. } if bytes.len() > MAX_TRANSPORT_MESSAGE => too_large(bytes.len()),
        Frame::Transport { bytes, .. } => put(out, &Bytes(bytes)),
        Frame::Ready => Ok(()),
        Frame::Notify { payload, .. } if payload.len() > MAX_NOTIFICATION => too_large(payload.len()),
        Frame::Notify { seq, payload } => put(out, &(seq, Bytes(payload))),
        Frame::NotifyAck { seq } => put(out, seq),
        Frame::Credit { consumed } => put(out, consumed),
        Frame::Revoke { scope, .. } if scope.len() > MAX_FRAME_IDS => too_large(scope.len()),
        Frame::Revoke { epoch, scope } => {
            put(out, &(epoch, IdsRef(&scope.regions), NumbersRef(&scope.ops), scope.all))
        }
        Frame::RevokeAck { epoch } => put(out, epoch),
        Frame::Ping { token } | Frame::Pong { token } => put(out, token),
        Frame::Bye { text, .. } if text.len() > MAX_BYE_TEXT => too_large(text.len()),
        Frame::Bye { reason, text } => put(out, &(reason.code(), text.as_str())),
        Frame::Skipped { .. } => Ok(()),
    }
}

pub(super) fn read(header: Header, body: &[u8]) -> Result<Frame, FrameError> {
    let kind = header.kind;
    Ok(match kind {
        1 => {
            let hello: HelloBody<'_> = take_open(kind, body)?;
            Frame::Hello(Hello {
                version: hello.version,
                name: hello.name.to_owned(),
                incarnation: hello.incarnation,
                target: hello.target,
                nonce: hello.nonce,
                token_in_force: hello.token_in_force,
            })
        }
        2 => {
            let challenge: ChallengeBody<'_> = take_open(kind, body)?;
            Frame::Challenge(Challenge {
                name: challenge.name.to_owned(),
                incarnation: challenge.incarnation,
                nonce: challenge.nonce,
                proof: challenge.proof,
                token_in_force: challenge.token_in_force,
            })
        }
        3 => Frame::Proof(take(kind, body)?),
        4 => Frame::Welcome(take(kind, body)?),
        5 => Frame::Refuse(take_refusal(kind, body)?),
        6 => {
            let (from, below, ids): (u64, u64, Ids) = take(kind, body)?;
            let ids = ids.0.into_iter().map(RegionId).collect();
            let live = LiveRegions { from, below, ids };
            if !live.is_well_formed() {
                return malformed(kind);
            }
            Frame::Live(live)
        }
        TRANSPORT => {
            let bytes: Bytes<'_> = take(kind, body)?;
            if bytes.0.len() > MAX_TRANSPORT_MESSAGE {
                return malformed(kind);
            }
            Frame::Transport { bytes: bytes.0.to_vec(), fds: header.fds }
        }
        8 if body.is_empty() => Frame::Ready,
        9 => {
            let (seq, payload): (u64, Bytes<'_>) = take(kind, body)?;
            if payload.0.len() > MAX_NOTIFICATION {
                return malformed(kind);
            }
            Frame::Notify { seq, payload: payload.0.to_vec() }
        }
        10 => Frame::NotifyAck { seq: take(kind, body)? },
        11 => Frame::Credit { consumed: take(kind, body)? },
        12 => {
            let (epoch, regions, ops, all): (u64, Ids, Ids, bool) = take(kind, body)?;
            let scope =
                RevokeScope { regions: regions.0.into_iter().map(RegionId).collect(), ops: ops.0, all };
            if scope.len() > MAX_FRAME_IDS {
                return malformed(kind);
            }
            Frame::Revoke { epoch, scope }
        }
        13 => Frame::RevokeAck { epoch: take(kind, body)? },
        14 => Frame::Ping { token: take(kind, body)? },
        15 => Frame::Pong { token: take(kind, body)? },
        BYE => {
            let (code, text): (u16, &str) = take_open(kind, body)?;
            if text.len() > MAX_BYE_TEXT {
                return malformed(kind);
            }
            Frame::Bye { reason: ByeReason::from_code(code), text: text.to_owned() }
        }
        // The header was checked: what is left may be skipped, or is a Ready with a body.
        kind if !is_known(kind) => Frame::Skipped { kind },
        _ => return malformed(kind),
    })
}

#[derive(Serialize, Deserialize)]
struct HelloBody<'a> {
    version: u16,
    name: &'a str,
    incarnation: Incarnation,
    target: Incarnation,
    nonce: Nonce,
    token_in_force: bool,
}

#[derive(Serialize, Deserialize)]
struct ChallengeBody<'a> {
    name: &'a str,
    incarnation: Incarnation,
    nonce: Nonce,
    proof: [u8; 32],
    token_in_force: bool,
}

fn put_refusal(out: &mut Vec<u8>, refusal: &Refusal) -> Result<(), FrameError> {
    match *refusal {
        Refusal::Unauthorized { token_in_force } => put(out, &(1_u16, token_in_force)),
        Refusal::WrongIncarnation { found } => put(out, &(2_u16, found)),
        Refusal::Version { oldest, newest } => put(out, &(3_u16, oldest, newest)),
        Refusal::Busy => put(out, &4_u16),
        Refusal::Dead => put(out, &5_u16),
        Refusal::Other { code } => put(out, &code),
    }
}

fn take_refusal(kind: u8, body: &[u8]) -> Result<Refusal, FrameError> {
    let Ok((code, detail)) = postcard::take_from_bytes::<u16>(body) else {
        return malformed(kind);
    };
    Ok(match code {
        1 => Refusal::Unauthorized { token_in_force: take_open(kind, detail)? },
        2 => Refusal::WrongIncarnation { found: take_open(kind, detail)? },
        3 => {
            let (oldest, newest) = take_open(kind, detail)?;
            Refusal::Version { oldest, newest }
        }
        4 => Refusal::Busy,
        5 => Refusal::Dead,
        code => Refusal::Other { code },
    })
}

fn put<T: Serialize>(out: &mut Vec<u8>, value: &T) -> Result<(), FrameError> {
    // Writing to a vector can't fail, and no body has a type that postcard lacks.
    match postcard::to_io(value, &mut *out) {
        Ok(_) => Ok(()),
        Err(_) => Err(FrameError::TooLarge { len: out.len() }),
    }
}

/// The whole body and nothing behind it.
fn take<'a, T: Deserialize<'a>>(kind: u8, body: &'a [u8]) -> Result<T, FrameError> {
    match postcard::take_from_bytes(body) {
        Ok((value, [])) => Ok(value),
        _ => malformed(kind),
    }
}

/// The front of the body; later versions may have appended to it.
fn take_open<'a, T: Deserialize<'a>>(kind: u8, body: &'a [u8]) -> Result<T, FrameError> {
    match postcard::take_from_bytes(body) {
        Ok((value, _)) => Ok(value),
        Err(_) => malformed(kind),
    }
}

fn malformed<T>(kind: u8) -> Result<T, FrameError> {
    Err(FrameError::Malformed { frame: name(kind) })
}

/// Bytes as a length and one run, borrowed from the body.
struct Bytes<'a>(&'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&'de [u8]>::deserialize(deserializer).map(Self)
    }
}

struct IdsRef<'a>(&'a [RegionId]);

impl Serialize for IdsRef<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|id| id.0))
    }
}

struct NumbersRef<'a>(&'a [u64]);

impl Serialize for NumbersRef<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0)
    }
}

/// Numbers whose memory grows with the bytes that hold them, not with the count that the sender claims.
struct Ids(Vec<u64>);

impl<'de> Deserialize<'de> for Ids {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Numbers;

        impl<'de> Visitor<'de> for Numbers {
            type Value = Ids;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "at most {MAX_FRAME_IDS} numbers")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Ids, A::Error> {
                let mut numbers = Vec::new();
                while let Some(number) = seq.next_element()? {
                    if numbers.len() == MAX_FRAME_IDS {
                        return Err(A::Error::invalid_length(MAX_FRAME_IDS + 1, &self));
                    }
                    numbers.push(number);
                }
                Ok(Ids(numbers))
            }
        }

        deserializer.deserialize_seq(Numbers)
    }
}
