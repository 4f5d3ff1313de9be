//! Two agents: one offers a pool of pages, the other writes some of them and says so.

use std::error::Error;
use std::time::Duration;

use kvferry::{Agent, GridRow, Indices, MemoryKind, Op, TransferOptions};

const PAGE: u64 = 64 << 10;
const PAGES: u64 = 32;

fn main() -> Result<(), Box<dyn Error>> {
    // Two processes, usually. Each allocates its pool and registers it.
    let (prefill, decode) = (Agent::builder("prefill").build()?, Agent::builder("decode").build()?);
    let source = prefill.register(prefill.alloc((PAGES * PAGE) as usize)?)?;
    let pool = decode.register(decode.alloc((PAGES * PAGE) as usize)?)?;
    source.fill(7);

    // The metadata of decode reaches prefill by whatever way the two share.
    let peer = prefill.load_remote(&decode.metadata())?;

    // A grid row describes a whole pool: 32 pages of 64 KiB, one after another.
    let pages = |addr| [GridRow { addr, len: PAGE, device: 0, stride: PAGE, count: PAGES }];
    let local = prefill.prepare_local(MemoryKind::Dram, &pages(source.addr()))?;
    let remote = prefill.prepare_remote(&peer, MemoryKind::Dram, &pages(pool.addr()))?;

    // Pages 0, 1 and 2 go to the pages 9, 4 and 30; then decode is told.
    let (from, to) = (Indices::List(&[0, 1, 2]), Indices::List(&[9, 4, 30]));
    let options = TransferOptions::default().notify("request 1 is there");
    let transfer = prefill.transfer(Op::Write, &local, from, &remote, to, options)?;
    transfer.post()?;
    println!("{}", transfer.wait(Duration::from_secs(5))?);

    for told in decode.notifications() {
        println!("{}: {}", told.from, String::from_utf8_lossy(&told.payload));
    }
    let mut page = vec![0; PAGE as usize];
    pool.copy_out(4 * PAGE as usize, &mut page)?;
    assert!(page.iter().all(|byte| *byte == 7));
    Ok(())
}
