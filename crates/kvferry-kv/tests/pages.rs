//! Pages of registered pools go from one worker to another, by what the other told of its buffers.

use std::time::Duration;

use kvferry::{Agent, MemoryKind, Op, RegionDesc, RegionOwner, SharedBuf, Status, TransferOptions};
use kvferry_kv::{
    AuxBuffer, KvEntry, KvPart, PageGrid, PeerLayout, RegisteredBuffers, StateComponent, StateTensor,
    WorkerBuffers,
};

const LAYERS: u32 = 3;
const ITEM: usize = 4096;
const POISON: u8 = 0xee;

/// The pools of one worker: a buffer for each layer and part, and one for aux rows and state.
struct Pools {
    kv: Vec<SharedBuf>,
    rest: SharedBuf,
}

// SAFETY: the buffers' own promises.
unsafe impl RegionOwner for Pools {
    fn regions(&self) -> Vec<RegionDesc> {
        self.kv.iter().chain([&self.rest]).flat_map(RegionOwner::regions).collect()
    }
}

struct Worker {
    agent: Agent,
    kv: Vec<SharedBuf>,
    registered: RegisteredBuffers,
}

fn worker(name: &str, pages: usize) -> Worker {
    let agent = Agent::builder(name).build().expect("an agent");
    let alloc = |bytes| agent.alloc(bytes).expect("memory");
    let kv: Vec<SharedBuf> = (0..2 * LAYERS).map(|_| alloc(pages * ITEM)).collect();
    let rest = alloc(8192);
    let entry = |(index, pool): (usize, &SharedBuf)| KvEntry {
        ptr: pool.addr(),
        len: pool.len() as u64,
        item_len: ITEM as u64,
        kind: MemoryKind::Dram,
        device: 0,
        layer: index as u32 / 2,
        part: if index % 2 == 0 { KvPart::K } else { KvPart::V },
    };
    let tensor = StateTensor {
        ptr: rest.addr() + 4096,
        len: 4096,
        item_len: 1024,
        kind: MemoryKind::Dram,
        device: 0,
        layer: None,
    };
    let buffers = WorkerBuffers {
        kv: kv.iter().enumerate().map(entry).collect(),
        aux: vec![AuxBuffer { ptr: rest.addr(), len: 4096, item_len: 64 }],
        state: vec![StateComponent { name: "swa".to_owned(), tensors: vec![tensor] }],
    };
    kv.iter().for_each(|pool| pool.fill(POISON));
    let registered = buffers.register(&agent, Pools { kv: kv.clone(), rest }).expect("registered");
    Worker { agent, kv, registered }
}

/// What a page of a pool is filled with.
fn pattern(pool: usize, page: u32) -> Vec<u8> {
    (0..ITEM).map(|at| (at * 7 + pool * 31 + page as usize * 101) as u8).collect()
}

#[test]
fn pages_land_in_the_peers_pages_and_nowhere_else() {
    let prefill = worker("prefill", 8);
    let decode = worker("decode", 12);
    for (number, pool) in prefill.kv.iter().enumerate() {
        for page in 0..8 {
            pool.copy_in(page as usize * ITEM, &pattern(number, page)).expect("inside");
        }
    }

    // What goes over the workers' own channel.
    let metadata = decode.agent.metadata();
    let told = postcard::to_stdvec(decode.registered.layout()).expect("encodes");

    prefill.agent.load_remote(&metadata).expect("loads");
    let layout: PeerLayout = postcard::from_bytes(&told).expect("decodes");
    assert_eq!(layout.state[0].name, "swa");
    let ours = prefill.registered.layout().pages().expect("whole pages");
    let theirs: PageGrid = layout.pages().expect("whole pages");
    ours.check_peer(&theirs).expect("they fit");

    let local = prefill.agent.prepare_local(ours.kind(), &ours.rows()).expect("inside our pools");
    let remote =
        prefill.agent.prepare_remote("decode", theirs.kind(), &theirs.rows()).expect("inside theirs");
    let (from, to) = ([3, 4, 0], [10, 11, 2]);
    let transfer = prefill
        .agent
        .transfer(
            Op::Write,
            &local,
            &ours.indices(&from).expect("our pages")[..],
            &remote,
            &theirs.indices(&to).expect("their pages")[..],
            TransferOptions::default(),
        )
        .expect("a transfer");
    transfer.post().expect("posted");
    assert_eq!(transfer.wait(Duration::from_secs(10)).expect("in time"), Status::Done);

    for (number, pool) in decode.kv.iter().enumerate() {
        for page in 0..12 {
            let mut bytes = vec![0; ITEM];
            pool.copy_out(page as usize * ITEM, &mut bytes).expect("inside");
            let expected = match to.iter().position(|landed| *landed == page) {
                Some(at) => pattern(number, from[at]),
                None => vec![POISON; ITEM],
            };
            assert!(bytes == expected, "page {page} of pool {number}");
        }
    }
}

#[test]
fn buffers_that_were_taken_back_are_out_of_reach() {
    let prefill = worker("prefill", 2);
    let mut decode = worker("decode", 2);
    prefill.agent.load_remote(&decode.agent.metadata()).expect("loads");
    prefill.agent.connect("decode", Duration::from_secs(5)).expect("connects");
    let rows = decode.registered.layout().pages().expect("whole pages").rows();
    prefill.agent.prepare_remote("decode", MemoryKind::Dram, &rows).expect("registered");
    decode.registered.deregister().expect("no transfer runs");
    assert_eq!(decode.agent.regions(), []);
    let deadline = std::time::Instant::now() + Duration::from_secs(5);
    while prefill.agent.prepare_remote("decode", MemoryKind::Dram, &rows).is_ok() {
        assert!(std::time::Instant::now() < deadline, "the peer never learned of it");
        std::thread::yield_now();
    }
}
