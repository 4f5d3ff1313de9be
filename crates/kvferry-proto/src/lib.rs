//! The protocol core of kvferry, without input or output: no sockets, no threads, no clocks.
//!
//! Blocks, lists and plans say *what* moves; the metadata blob says *who* and *where*.

#![forbid(unsafe_code)]

mod blob;
mod block;
mod chunk;
mod endpoint;
mod frame;
pub mod fuzzing;
mod kind;
mod list;
mod notify;
mod overlap;
mod peers;
mod plan;
mod proof;
mod range_map;
mod reach;
mod region;
mod revoke;
mod session;
mod stream;
mod tlv;

pub use blob::{
    BLOB_VERSION, Blob, BlobError, Capability, Host, MAX_BLOB, MAX_BLOB_REGIONS, MAX_ENDPOINTS, Secret,
};
pub use block::{Block, Blocks, GridRow};
pub use chunk::{Chunk, ChunkLimits, RouteId, Segment};
pub use endpoint::{Endpoint, MAX_UNIX_NAME};
pub use frame::{
    ByeReason, Challenge, FRAME_HEADER, Frame, FrameError, FrameReader, Hello, LiveRegions, MAX_BYE_TEXT,
    MAX_FRAME_BODY, MAX_FRAME_FDS, MAX_FRAME_IDS, MAX_TRANSPORT_MESSAGE, Nonce, PROTOCOL_VERSION, Refusal,
};
pub use kind::{MemoryKind, Op, UnknownNumber};
pub use list::{BlockAt, BlockList, BlockRef, ListError, ListRow};
pub use notify::{
    Arrival, INBOX_BYTES, MAX_NOTIFICATION, NOTIFY_OVERHEAD, NotifyCredit, NotifyError, NotifyReceiver,
    NotifySender, NotifyViolation, Reservation, Resume, notification_cost,
};
pub use peers::{
    Identity, Inbound, Loss, MAX_AGENT_NAME, Offer, OfferRefusal, OldLink, PeerTable, REMEMBERED_DEATHS,
    Update, Verdict, is_agent_name,
};
pub use plan::{End, Plan, PlanCursor, PlanError, PlanSide, Selection};
pub use proof::{ProofKey, Role, Transcript};
pub use range_map::{Nearest, RangeEntry, RangeMap};
pub use reach::{MAX_REACH, MAX_REACH_KEY, Reach};
pub use region::{Incarnation, RegionDesc, RegionError, RegionId, RegionKey, RemoteRegion, human_size};
pub use revoke::{
    AcknowledgeError, Acknowledged, Evidence, MAX_TOMBSTONES, Outcome, Revocations, RevokeError, RevokeScope,
    Tombstones, TooManyTombstones, busy_word, word_is_quiet,
};
pub use session::{Action, ChannelLoss, Command, CommandError, LostCause, Session, SessionConfig, Violation};
pub use stream::{
    ChannelKey, MAX_STREAM_NAMES, MAX_STREAM_PAYLOAD, MAX_STREAM_SEGMENTS, MAX_STREAMS, STREAM_GROUP,
    STREAM_HEADER, STREAM_HELLO, StreamError, StreamHeader, StreamHello, StreamKind, StreamSegment,
};
