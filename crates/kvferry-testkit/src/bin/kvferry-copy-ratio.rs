//! What the engine makes of what the kernel can do: 64 KiB blocks in random order over cross-memory attach, beside a bare loop of
//! vectored `process_vm_writev` on the same memory, in turns. Build it in release.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use kvferry::{Agent, GridRow, Indices, MemoryKind, Op, Settings, Status, TransferOptions};
use kvferry_testkit::{
    MemoryClass, Pool,
    harness::{Buffer, Chance, Launch, Memory, pattern},
};

/// Marks the process that is written to.
const ROLE: &str = "COPY_RATIO_ROLE";

const BLOCK: u64 = 64 << 10;
const BLOCKS: u32 = 4096;
const BYTES: u64 = BLOCK * BLOCKS as u64;
const SEED: u64 = 1;

/// Measured rounds, after one that is not.
const ROUNDS: usize = 5;

/// Vectors that one call takes at most.
const VECTORS: usize = 1024;

fn main() -> ExitCode {
    if std::env::var_os(ROLE).is_some() {
        return kvferry_testkit::child::main();
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    if cfg!(debug_assertions) {
        println!("not a release build: the figures say little");
    }
    println!("{BLOCKS} blocks of 64 KiB in random order on both sides, private memory, cma; GB/s");
    for threads in [1, 2] {
        measure(threads)?;
    }
    Ok(())
}

fn measure(threads: usize) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("the path of this program")?;
    let target = Launch::new(program, "target").env(ROLE, "target").start();
    let far = target.registered(Memory::Private, BYTES).buffer;
    let settings = Settings { threads, ..Settings::default() };
    let agent = Agent::builder("initiator").settings(settings).build()?;
    let near = agent.register(Pool::new(&agent, MemoryClass::Private, BYTES)).map_err(|e| e.error)?;
    for block in 0..BYTES / BLOCK {
        let words = (block * BLOCK / 8..(block + 1) * BLOCK / 8).flat_map(|i| pattern(SEED, i).to_ne_bytes());
        near.store(block * BLOCK, &words.collect::<Vec<u8>>());
    }
    let metadata = target.metadata();
    agent.load_remote(&bytes_of(&metadata)?)?;

    let pairs = Chance::new(7).pairs(BLOCKS);
    let row = |addr| [GridRow { addr, len: BLOCK, device: 0, stride: BLOCK, count: u64::from(BLOCKS) }];
    let local = agent.prepare_local(MemoryKind::Dram, &row(near.addr())[..])?;
    let remote = agent.prepare_remote("target", MemoryKind::Dram, &row(far.addr)[..])?;
    let (here, there): (Vec<u32>, Vec<u32>) = pairs.iter().copied().unzip();
    let transfer = agent.transfer(
        Op::Write,
        &local,
        Indices::List(&here),
        &remote,
        Indices::List(&there),
        TransferOptions::default(),
    )?;
    let raw = RawLoop::new(target.pid(), &pairs, near.addr(), far, threads);

    let (mut engine, mut bare) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        target.poison(far);
        let took = {
            let begun = Instant::now();
            transfer.post()?;
            let ended = transfer.wait(Duration::from_secs(30))?;
            ensure!(ended == Status::Done, "{ended}");
            begun.elapsed()
        };
        target.expect_blocks(far, SEED, BLOCK, &pairs);
        target.poison(far);
        let raw_took = raw.run()?;
        target.expect_blocks(far, SEED, BLOCK, &pairs);
        if round > 0 {
            engine.push(gbps(took));
            bare.push(gbps(raw_took));
        }
    }
    let (engine, bare) = (median(engine), median(bare));
    println!("{threads} copy threads: engine {engine:.2}, bare loop {bare:.2}, ratio {:.2}", engine / bare);
    Ok(())
}

/// The bare loop: lists of ranges, made beforehand, a share a thread.
struct RawLoop {
    pid: i32,
    shares: Vec<(Vec<Range>, Vec<Range>)>,
}

/// A range as the kernel takes it.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Range(libc::iovec);

// SAFETY: numbers to this process; the kernel checks what they stand for.
unsafe impl Send for Range {}
// SAFETY: as above.
unsafe impl Sync for Range {}

impl RawLoop {
    fn new(pid: i32, pairs: &[(u32, u32)], near: u64, far: Buffer, threads: usize) -> Self {
        let range = |start: u64, block: u32| {
            let addr = (start + u64::from(block) * BLOCK) as usize;
            Range(libc::iovec { iov_base: std::ptr::without_provenance_mut(addr), iov_len: BLOCK as usize })
        };
        let share = |pairs: &[(u32, u32)]| {
            pairs.iter().map(|(here, there)| (range(near, *here), range(far.addr, *there))).unzip()
        };
        Self { pid, shares: pairs.chunks(pairs.len().div_ceil(threads)).map(share).collect() }
    }

    fn run(&self) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                self.shares.iter().map(|(near, far)| scope.spawn(|| self.copy(near, far))).collect();
            threads.into_iter().try_for_each(|thread| match thread.join() {
                Ok(copied) => copied,
                Err(_) => bail!("a copying thread panicked"),
            })
        })?;
        Ok(begun.elapsed())
    }

    fn copy(&self, near: &[Range], far: &[Range]) -> anyhow::Result<()> {
        for (near, far) in near.chunks(VECTORS).zip(far.chunks(VECTORS)) {
            let count = near.len() as libc::c_ulong;
            // SAFETY: both lists live during the call and a `Range` is an iovec; ours lie inside registered memory, and the
            // kernel checks the others.
            let copied = unsafe {
                libc::process_vm_writev(self.pid, near.as_ptr().cast(), count, far.as_ptr().cast(), count, 0)
            };
            let all = near.len() as u64 * BLOCK;
            ensure!(copied == all as isize, "{copied} of {all} bytes: {}", std::io::Error::last_os_error());
        }
        Ok(())
    }
}

fn bytes_of(hex: &str) -> anyhow::Result<Vec<u8>> {
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).context("metadata in hexadecimal digits");
    (0..hex.len()).step_by(2).map(byte).collect()
}

fn gbps(took: Duration) -> f64 {
    BYTES as f64 / 1e9 / took.as_secs_f64()
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
