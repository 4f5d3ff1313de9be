//! A transport whose operations start late and cannot be stopped: what RDMA and GPU copies are like, without either.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use kvferry::transport::{Attach, AttachContext, Attached, Backlog, Message, Transport};
use kvferry::{ConnectError, LocalRegion, Path, WhyNot};
use kvferry_proto::Reach;
use kvferry_sys::RegionSlice;

use link::LateLink;
use wire::Wire;
use worker::{Job, Worker};

mod link;
mod op;
mod wire;
mod worker;

/// The name of path and mechanism.
const NAME: &str = "late";

/// The number under which regions list this mechanism in the metadata.
const MECHANISM: u8 = 0xfe;

/// How the mock behaves.
#[derive(Clone, Debug)]
pub struct LateOptions {
    /// From the submission to the first byte.
    pub start_after: Duration,
    /// A pause after each chunk of at most 2 MiB.
    pub pace: Duration,
    /// Operations that may wait at once; one more is refused.
    pub depth: usize,
    /// How the owner of memory learns that nothing touches it any more.
    pub evidence: LateEvidence,
}

/// How the owner of memory learns that nothing touches it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LateEvidence {
    /// It looks into a book that both ends share, as into a page of memory.
    Book,
    /// The end that copies gives its word: it acknowledges a revocation once what has begun is over.
    Word,
}

impl Default for LateOptions {
    fn default() -> Self {
        Self {
            start_after: Duration::from_millis(4),
            pace: Duration::from_micros(500),
            depth: 4096,
            evidence: LateEvidence::Book,
        }
    }
}

/// A whole transport between agents of one process, with a copy thread of its own.
///
/// An operation waits before it starts; until then a cancel ends it. Once it has begun nothing stops it: it goes on to its last
/// byte, and only then it is quiet. A cancelled one reports *done*, since the hardware that this stands for knows of no
/// cancel.
pub struct LateTransport {
    shop: Arc<Shop>,
}

/// What an agent's end shares with its links: options, the regions that it gave out, the way to its copy thread.
pub(crate) struct Shop {
    number: u64,
    options: LateOptions,
    regions: Mutex<HashMap<u64, RegionSlice>>,
    worker: Worker,
}

/// All shops of this process, and the wires that are being attached to.
#[derive(Default)]
struct Directory {
    shops: HashMap<u64, Weak<Shop>>,
    wires: HashMap<u64, Weak<Wire>>,
}

static DIRECTORY: LazyLock<Mutex<Directory>> = LazyLock::new(Mutex::default);
static NUMBERS: AtomicU64 = AtomicU64::new(1);

fn directory() -> MutexGuard<'static, Directory> {
    lock(&DIRECTORY)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LateTransport {
    /// One agent's end.
    ///
    /// # Panics
    /// There is no thread for it.
    pub fn new(options: LateOptions) -> Arc<Self> {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let worker = Worker::start().expect("a thread for the late transport");
        let shop = Arc::new(Shop { number, options, regions: Mutex::default(), worker });
        directory().shops.insert(number, Arc::downgrade(&shop));
        Arc::new(Self { shop })
    }
}

impl Shop {
    /// The memory that `key`, from a peer's metadata, stands for.
    fn find(key: &[u8]) -> Option<RegionSlice> {
        let (numbers, _) = key.as_chunks::<8>();
        let [shop, region] = *numbers else { return None };
        let shop = directory().shops.get(&u64::from_le_bytes(shop))?.upgrade()?;
        lock(&shop.regions).get(&u64::from_le_bytes(region)).copied()
    }

    fn queue(&self, job: Job) -> Result<(), Backlog> {
        self.worker.queue(job, self.options.depth)
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        directory().shops.remove(&self.number);
    }
}

impl Transport for LateTransport {
    fn path(&self) -> Path {
        Path::Other(NAME)
    }

    fn reach(&self, region: &LocalRegion) -> Vec<Reach> {
        let (id, desc) = (region.id().0, region.desc());
        let Some(whole) = region.slice(desc.addr, desc.len) else { return Vec::new() };
        lock(&self.shop.regions).insert(id, whole);
        let key = [self.shop.number.to_le_bytes(), id.to_le_bytes()].concat();
        vec![Reach::Other { mechanism: MECHANISM, key: key.into() }]
    }

    fn attach(&self, context: AttachContext) -> Result<Box<dyn Attach>, ConnectError> {
        if let Some(reason) = context.settings.refusal(NAME, NAME) {
            let why_not = vec![WhyNot { way: NAME, reason }];
            let (peer, require) = (context.peer, context.settings.require);
            return Err(if require.is_empty() {
                ConnectError::NoPath { peer, why_not }
            } else {
                ConnectError::PathRequired { peer, required: require.to_string(), why_not }
            });
        }
        Ok(Box::new(LateAttach { shop: self.shop.clone(), context, wire: None }))
    }
}

impl fmt::Debug for LateTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LateTransport").field("options", &self.shop.options).finish_non_exhaustive()
    }
}

/// The initiator makes a wire and tells its number; the target finds it and says so.
struct LateAttach {
    shop: Arc<Shop>,
    context: AttachContext,
    wire: Option<(u64, Arc<Wire>)>,
}

impl LateAttach {
    fn ready(&self, wire: Arc<Wire>) -> Attached {
        Attached::Ready(LateLink::new(self.shop.clone(), wire, &self.context))
    }
}

impl Attach for LateAttach {
    fn start(&mut self) -> Result<Attached, ConnectError> {
        if self.context.initiator {
            let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
            let wire = Arc::new(Wire::default());
            directory().wires.insert(number, Arc::downgrade(&wire));
            self.context.outbox.send(link::encode(link::HELLO, number), Vec::new());
            self.wire = Some((number, wire));
        }
        Ok(Attached::Pending)
    }

    fn message(&mut self, message: Message) -> Result<Attached, ConnectError> {
        let refused = |reason: &str| ConnectError::Refused {
            peer: self.context.peer.clone(),
            reason: format!("late transport: {reason}"),
        };
        match (link::decode(&message.body), &self.wire) {
            (Some((link::HELLO, number)), None) => {
                let wire = directory().wires.remove(&number).and_then(|wire| wire.upgrade());
                let wire = wire.ok_or_else(|| refused("the other end is not in this process"))?;
                self.context.outbox.send(link::encode(link::WELCOME, number), Vec::new());
                Ok(self.ready(wire))
            }
            (Some((link::WELCOME, number)), Some((ours, wire))) if number == *ours => {
                Ok(self.ready(wire.clone()))
            }
            _ => Err(refused("an unexpected message")),
        }
    }
}
