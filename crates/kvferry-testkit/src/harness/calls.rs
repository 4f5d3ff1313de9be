//! The requests, as calls.

use super::{
    Buffer, Confinement, Counters, Failure, Holdings, Measured, Memory, Received, Request, Scan,
    StampedEvent, State, TransferSpec, Worker,
};

/// A buffer that is registered as a whole.
#[derive(Clone, Copy, Debug)]
pub struct Registered {
    /// The memory.
    pub buffer: Buffer,
    /// The id of its region.
    pub region: u64,
}

/// Lets `initiator` know `target` and connects it.
///
/// # Panics
/// It can't.
#[track_caller]
pub fn link(initiator: &Worker, target: &Worker) {
    initiator.load(target).unwrap_or_else(|e| panic!("{e:?}"));
    initiator.connect(target.name()).unwrap_or_else(|e| panic!("{e:?}"));
}

/// Most of these panic where the worker, not the engine, is at fault.
impl Worker {
    /// Builds the agent.
    ///
    /// # Panics
    /// It cannot be built.
    #[track_caller]
    pub fn build(&self) {
        self.expect::<()>(&Request::Build { name: self.name().to_owned() });
    }

    /// Gives up rights.
    ///
    /// # Errors
    /// The machine does not allow it.
    pub fn confine(&self, confinement: Confinement) -> Result<(), Failure> {
        self.ask(&Request::Confine(confinement))
    }

    /// Obtains memory.
    #[track_caller]
    pub fn alloc(&self, memory: Memory, bytes: u64) -> Buffer {
        self.expect(&Request::Alloc { memory, bytes })
    }

    /// Registers a buffer.
    #[track_caller]
    pub fn register(&self, buffer: Buffer) -> Registered {
        let region = self.expect(&Request::Register { buffer: buffer.index });
        Registered { buffer, region }
    }

    /// Obtains memory and registers it.
    #[track_caller]
    pub fn registered(&self, memory: Memory, bytes: u64) -> Registered {
        self.register(self.alloc(memory, bytes))
    }

    /// Takes a region back.
    ///
    /// # Errors
    /// The engine's.
    pub fn deregister(&self, region: u64) -> Result<(), Failure> {
        self.ask(&Request::Deregister { regions: vec![region], timeout_ms: None })
    }

    /// Writes a pattern.
    #[track_caller]
    pub fn fill(&self, buffer: Buffer, seed: u64) {
        self.expect::<()>(&Request::Fill { buffer: buffer.index, seed });
    }

    /// Writes poison.
    #[track_caller]
    pub fn poison(&self, buffer: Buffer) {
        self.expect::<()>(&Request::Poison { buffer: buffer.index });
    }

    /// Counts and digests.
    #[track_caller]
    pub fn scan(&self, buffer: Buffer, seed: u64) -> Scan {
        self.expect(&Request::Scan { buffer: buffer.index, seed })
    }

    /// The digest of a scan.
    #[track_caller]
    pub fn digest(&self, buffer: Buffer) -> u64 {
        self.expect(&Request::Digest { buffer: buffer.index })
    }

    /// Counts and digests, then poisons.
    #[track_caller]
    pub fn renew(&self, buffer: Buffer, seed: u64) -> Scan {
        self.expect(&Request::Renew { buffer: buffer.index, seed })
    }

    /// Makes sure that block `b` holds what block `a` of the pattern does, for each pair `(a, b)`.
    #[track_caller]
    pub fn expect_blocks(&self, buffer: Buffer, seed: u64, block: u64, pairs: &[(u32, u32)]) {
        let request = Request::Compare { buffer: buffer.index, seed, block, pairs: pairs.to_vec() };
        let wrong: Option<super::Mismatch> = self.expect(&request);
        assert_eq!(wrong, None, "{}: bytes are not what they should be", self.name());
    }

    /// Makes sure that the whole buffer holds the pattern.
    #[track_caller]
    pub fn expect_filled(&self, buffer: Buffer, seed: u64) {
        let scan = self.scan(buffer, seed);
        assert_eq!(scan.pattern, scan.words, "{}: bytes are not what they should be: {scan:?}", self.name());
    }

    /// The agent's metadata.
    #[track_caller]
    pub fn metadata(&self) -> String {
        self.expect(&Request::Metadata)
    }

    /// Loads the metadata of another worker.
    ///
    /// # Errors
    /// The engine's.
    pub fn load(&self, peer: &Self) -> Result<String, Failure> {
        self.ask(&Request::Load { metadata: peer.metadata() })
    }

    /// Connects to a peer.
    ///
    /// # Errors
    /// The engine's.
    pub fn connect(&self, peer: &str) -> Result<(), Failure> {
        self.ask(&Request::Connect { peer: peer.to_owned(), timeout_ms: 5_000 })
    }

    /// The lines of the path report.
    #[track_caller]
    pub fn path(&self, peer: &str) -> Vec<String> {
        self.expect(&Request::Path { peer: peer.to_owned() })
    }

    /// A WRITE of a whole buffer to memory of a peer, as one block.
    pub fn write(&self, buffer: Buffer, peer: &Self, remote: Buffer) -> TransferSpec {
        TransferSpec {
            write: true,
            buffer: buffer.index,
            peer: peer.name().to_owned(),
            remote: (remote.addr, remote.len),
            block: buffer.len,
            pairs: Vec::new(),
            notification: None,
        }
    }

    /// A READ of a peer's memory into a whole buffer, as one block.
    pub fn read(&self, buffer: Buffer, peer: &Self, remote: Buffer) -> TransferSpec {
        TransferSpec { write: false, ..self.write(buffer, peer, remote) }
    }

    /// Creates a transfer.
    ///
    /// # Errors
    /// The engine's.
    pub fn transfer(&self, spec: &TransferSpec) -> Result<u64, Failure> {
        self.ask(&Request::Transfer(spec.clone()))
    }

    /// Posts a transfer.
    ///
    /// # Errors
    /// The engine's.
    pub fn post(&self, transfer: u64) -> Result<(), Failure> {
        self.ask(&Request::Post { transfer })
    }

    /// How far a transfer has come.
    #[track_caller]
    pub fn status(&self, transfer: u64) -> State {
        self.expect(&Request::Status { transfer })
    }

    /// Waits for a transfer's end.
    ///
    /// # Errors
    /// The time ran out.
    pub fn wait(&self, transfer: u64, timeout_ms: u64) -> Result<State, Failure> {
        self.ask(&Request::Wait { transfer, timeout_ms })
    }

    /// Creates a transfer, posts it, and waits until it is done.
    ///
    /// # Panics
    /// It does not come to that.
    #[track_caller]
    pub fn run(&self, spec: &TransferSpec) -> u64 {
        let transfer = self.transfer(spec).unwrap_or_else(|e| panic!("{e:?}"));
        self.post(transfer).unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!(self.wait(transfer, 20_000), Ok(State::Done), "{}", self.name());
        transfer
    }

    /// Cancels a transfer.
    ///
    /// # Errors
    /// The engine's.
    pub fn cancel(&self, transfer: u64) -> Result<(), Failure> {
        self.ask(&Request::Cancel { transfer, timeout_ms: None })
    }

    /// Releases a transfer.
    ///
    /// # Errors
    /// The engine's.
    pub fn release(&self, transfer: u64) -> Result<(), Failure> {
        self.ask(&Request::Release { transfer, timeout_ms: None })
    }

    /// What a transfer measured.
    #[track_caller]
    pub fn measured(&self, transfer: u64) -> Measured {
        self.expect(&Request::Telemetry { transfer })
    }

    /// Waits for notifications.
    #[track_caller]
    pub fn notifications(&self, count: usize) -> Vec<Received> {
        self.expect(&Request::AwaitNotifications { count, timeout_ms: 10_000 })
    }

    /// Waits for an event about a peer.
    ///
    /// # Errors
    /// It did not come in ten seconds.
    pub fn event(&self, kind: &str, peer: &str) -> Result<StampedEvent, Failure> {
        self.ask(&Request::AwaitEvent { kind: kind.to_owned(), peer: peer.to_owned(), timeout_ms: 10_000 })
    }

    /// The agent's counters.
    #[track_caller]
    pub fn stats(&self) -> Counters {
        self.expect(&Request::Stats)
    }

    /// What the process holds.
    #[track_caller]
    pub fn holdings(&self) -> Holdings {
        self.expect(&Request::Holdings)
    }
}

impl TransferSpec {
    /// The same bytes in blocks of that many.
    #[must_use]
    pub fn in_blocks_of(mut self, block: u64) -> Self {
        self.block = block;
        self
    }

    /// These pairs of local and remote blocks.
    #[must_use]
    pub fn paired(mut self, pairs: &[(u32, u32)]) -> Self {
        self.pairs = pairs.to_vec();
        self
    }

    /// With a notification.
    #[must_use]
    pub fn notifying(mut self, payload: &str) -> Self {
        self.notification = Some(payload.to_owned());
        self
    }
}
