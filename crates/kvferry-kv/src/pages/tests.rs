use super::*;

/// Layers of two parts each, of `pages` pages; layer `n` is at `(n + 1) << 20`, its V half a megabyte on.
fn entries(layers: u32, pages: u64, item_len: u64) -> Vec<KvEntry> {
    let entry = |layer: u32, part| KvEntry {
        ptr: ((u64::from(layer) + 1) << 20) + if part == KvPart::V { 1 << 19 } else { 0 },
        len: pages * item_len,
        item_len,
        kind: MemoryKind::Dram,
        device: 0,
        layer,
        part,
    };
    (0..layers).flat_map(|layer| [entry(layer, KvPart::K), entry(layer, KvPart::V)]).collect()
}

fn grid(layers: u32, pages: u64, item_len: u64) -> PageGrid {
    PageGrid::new(&entries(layers, pages, item_len)).expect("good")
}

/// The blocks of the rows, by their numbers in a prepared list.
fn expanded(grid: &PageGrid) -> Vec<Block> {
    let row = |row: GridRow| {
        (0..row.count).map(move |i| Block {
            addr: row.addr + i * row.stride,
            len: row.len,
            device: row.device,
        })
    };
    grid.rows().into_iter().flat_map(row).collect()
}

#[test]
fn indices_name_the_blocks_of_the_pages() {
    let grid = grid(3, 10, 4096);
    assert_eq!((grid.pages(), grid.page_bytes(), grid.kind()), (10, 6 * 4096, MemoryKind::Dram));
    let pages = [7, 0, 9];
    let indices = grid.indices(&pages).expect("they exist");
    assert_eq!(indices, [7, 0, 9, 17, 10, 19, 27, 20, 29, 37, 30, 39, 47, 40, 49, 57, 50, 59]);
    let all = expanded(&grid);
    assert_eq!(all.len(), 60);
    let named: Vec<Block> = indices.iter().map(|index| all[*index as usize]).collect();
    assert_eq!(named, grid.blocks(&pages).expect("they exist"));
    assert_eq!(named[3], Block { addr: (1 << 20) + (1 << 19) + 7 * 4096, len: 4096, device: 0 });
    assert_eq!(grid.indices(&[]).expect("none"), []);
}

#[test]
fn pools_of_different_sizes_keep_their_own_rows() {
    let mut entries = entries(2, 10, 64);
    (entries[1].len, entries[1].item_len) = (3 * 128, 128);
    entries[2].len = 0;
    let grid = PageGrid::new(&entries).expect("good");
    assert_eq!(grid.pools().len(), 3);
    assert_eq!((grid.pages(), grid.page_bytes()), (3, 64 + 128 + 64));
    assert_eq!(grid.indices(&[2]).expect("all have it"), [2, 12, 15]);
    let error = grid.indices(&[0, 3, 1]).expect_err("the second pool has three");
    assert_eq!(error.to_string(), "page 3: layer 0 V has 3 pages (buffers.page)");
    assert_eq!(grid.blocks(&[3]), Err(error.clone()));
    assert!(error.remedy().contains("not token slots"));
    assert_eq!(grid.pools()[1].block(2), Some(Block { addr: entries[1].ptr + 256, len: 128, device: 0 }));
    assert_eq!(grid.pools()[1].block(3), None);
}

#[test]
fn pools_that_make_no_pages_are_refused() {
    let mut bad = entries(2, 10, 64);
    bad[2].item_len = 60;
    let error = PageGrid::new(&bad).expect_err("no whole pages");
    assert_eq!(
        error.to_string(),
        "layer 1 K: item length 60 does not divide the length 640 (buffers.item_length)"
    );
    bad[2].item_len = 0;
    assert_eq!(PageGrid::new(&bad).expect_err("no pages").code(), "buffers.item_length");

    let mut bad = entries(2, 10, 64);
    bad[3].kind = MemoryKind::Vram;
    let error = PageGrid::new(&bad).expect_err("two kinds");
    assert_eq!(error.to_string(), "layer 1 V is in VRAM, the pools before it in DRAM (buffers.kinds)");

    let mut bad = entries(2, 10, 64);
    bad[0].ptr = u64::MAX - 100;
    assert_eq!(PageGrid::new(&bad).expect_err("wraps").code(), "register.overflow");

    let error = PageGrid::new(&entries(2, 1 << 30, 1)).expect_err("2^32 pages in all");
    assert_eq!(error.code(), "buffers.too_many_pages");
    assert!(PageGrid::new(&entries(1, 1 << 30, 1)).is_ok());
    let error = PageGrid::new(&entries(1, 1 << 32, 1)).expect_err("2^32 pages in one");
    assert_eq!(
        error.to_string(),
        "the pools have more than 4294967295 pages in all (buffers.too_many_pages)"
    );
}

#[test]
fn the_two_sides_must_fit_but_for_their_number_of_pages() {
    let ours = grid(3, 10, 64 << 10);
    assert_eq!(ours.check_peer(&grid(3, 99, 64 << 10)), Ok(()));
    let text = |theirs: &PageGrid| {
        let mismatch = ours.check_peer(theirs).expect_err("differs");
        assert_eq!(mismatch.code(), "buffers.layout_mismatch");
        assert!(mismatch.remedy().contains("page size"));
        mismatch.to_string()
    };
    assert_eq!(text(&grid(2, 10, 64 << 10)), "6 KV pools here, 4 at the peer (buffers.layout_mismatch)");
    assert_eq!(
        text(&grid(3, 10, 32 << 10)),
        "layer 0 K: pages of 64 KiB here, 32 KiB at the peer (buffers.layout_mismatch)"
    );
    let mut swapped = entries(3, 10, 64 << 10);
    swapped.swap(2, 3);
    assert_eq!(
        text(&PageGrid::new(&swapped).expect("good")),
        "KV pool 2 is layer 1 K here, layer 1 V at the peer (buffers.layout_mismatch)"
    );
}
