use proptest::prelude::*;

use super::*;
use crate::block::{Block, GridRow};
use crate::region::{RegionDesc, RegionId};

const BASE: u64 = 0xffff_8000_0000_0000;

fn map(regions: &[(u64, u64, u64)]) -> RangeMap {
    RangeMap::new(regions.iter().map(|&(id, start, len)| {
        let desc = RegionDesc { addr: BASE + start, len, kind: MemoryKind::Dram, device: 0 };
        (RegionId(id), desc)
    }))
}

fn block(start: u64, len: u64) -> Block {
    Block { addr: BASE + start, len, device: 0 }
}

fn row(start: u64, len: u64, stride: u64, count: u64) -> GridRow {
    GridRow { addr: BASE + start, len, device: 0, stride, count }
}

fn build<'a>(blocks: impl Into<Blocks<'a>>, map: &RangeMap) -> Result<BlockList, ListError> {
    BlockList::build(blocks, MemoryKind::Dram, map)
}

fn shape(list: &BlockList) -> Vec<(u64, u64, u64)> {
    list.rows().iter().map(|row| (row.addr - BASE, row.stride, row.count)).collect()
}

#[test]
fn an_empty_list_is_legal() {
    let map = map(&[]);
    let list = build(&[] as &[Block], &map).unwrap();
    assert!(list.is_empty() && list.get(0).is_none() && list.uniform_len().is_none());
    let list = build(&[row(0, 0, 0, 0)], &map).unwrap();
    assert_eq!((list.len(), list.overlap()), (0, None));
}

#[test]
fn grid_rows_stay_rows() {
    let map = map(&[(1, 0, 1 << 40)]);
    let list = build(&[row(0, 16, 64, 1 << 30), row(16, 16, 64, 7)], &map).unwrap();
    assert_eq!(list.rows().len(), 2);
    assert_eq!(list.len(), (1 << 30) + 7);
    assert_eq!(list.bytes(), ((1 << 30) + 7) * 16);
    assert_eq!(list.uniform_len(), Some(16));
    let last = list.get(list.len() - 1).unwrap();
    assert_eq!(last.addr, BASE + 16 + 6 * 64);
    assert_eq!(list.get(list.len()), None);
}

#[test]
fn a_row_is_split_where_the_region_changes() {
    let map = map(&[(5, 0, 1000), (6, 1000, 1000), (7, 2000, 100)]);
    let list = build(&[row(0, 100, 100, 21)], &map).unwrap();
    assert_eq!(shape(&list), [(0, 100, 10), (1000, 100, 10), (2000, 100, 1)]);
    let ids: Vec<_> = list.regions().iter().map(|entry| entry.id.0).collect();
    assert_eq!(ids, [5, 6, 7]);
    assert_eq!(list.get(15), Some(BlockRef { addr: BASE + 1500, len: 100, slot: 1 }));
}

#[test]
fn regular_flat_lists_become_rows() {
    let map = map(&[(1, 0, 1 << 20)]);
    let mut blocks: Vec<_> = (0..1000).map(|n| block(n * 256, 64)).collect();
    assert_eq!(shape(&build(&blocks, &map).unwrap()), [(0, 256, 1000)]);
    // One that breaks the rhythm, then a descent, which is no row.
    blocks.insert(500, block(7, 64));
    blocks.extend([block(3, 64), block(2, 64), block(1, 64)]);
    assert_eq!(
        shape(&build(&blocks, &map).unwrap()),
        [(0, 256, 500), (7, 64, 1), (500 * 256, 256, 500), (3, 64, 1), (2, 64, 1), (1, 64, 1)]
    );
}

#[test]
fn pairs_by_chance_are_no_rows_but_may_begin_one() {
    let map = map(&[(1, 0, 1000)]);
    let starts = [0, 500, 510, 520, 5, 6];
    let blocks = starts.map(|start| block(start, 1));
    assert_eq!(shape(&build(&blocks, &map).unwrap()), [(0, 1, 1), (500, 10, 3), (5, 1, 1), (6, 1, 1)]);
}

#[test]
fn errors_name_the_block_and_the_region() {
    let map = map(&[(3, 0, 1 << 20)]);
    let mut blocks = vec![block(0, 65536); 7];
    blocks.push(block((1 << 20) - 61440, 65536));
    let error = build(&blocks, &map).unwrap_err();
    assert_eq!(error.to_string(), "index 7 → 0xffff8000000f1000, 64 KiB is 4 KiB past region 3");

    let error = build(&[row(0, 65536, 65536, 4), row(4, 65536, 65536, 16)], &map).unwrap_err();
    assert_eq!(error.to_string(), "index 19 (row 1) → 0xffff8000000f0004, 64 KiB is 4 B past region 3");

    let error = build(&[block(0, 0)], &map).unwrap_err();
    assert!(matches!(error, ListError::ZeroLength { .. }), "{error}");
    let error = build(&[block(0, u64::MAX)], &map).unwrap_err();
    assert!(matches!(error, ListError::Wrap { .. }), "{error}");

    let other = [Block { device: 2, ..block(0, 1) }];
    assert_eq!(
        build(&other, &map).unwrap_err().to_string(),
        "index 0 → 0xffff800000000000, 1 B was given as DRAM device 2, but lies in region 3, \
         which is DRAM device 0"
    );
    let error = BlockList::build(&[block(1 << 30, 1)], MemoryKind::Vram, &map).unwrap_err();
    assert_eq!(
        error.to_string(),
        "index 0 → 0xffff800040000000, 1 B is in no region: there is none of VRAM device 0"
    );
}

#[test]
fn rows_that_lead_out_of_the_address_space_end_in_an_error() {
    let map = RangeMap::new([(
        RegionId(1),
        RegionDesc { addr: 0, len: u64::MAX, kind: MemoryKind::Dram, device: 0 },
    )]);
    let error = build(&[row(0, 8, 1 << 62, u64::MAX)], &map).unwrap_err();
    let ListError::Wrap { at } = error else {
        panic!("{error}");
    };
    assert_eq!(at.index, 1, "the second block would begin past the end");
    let error = build(&[row(0, 1 << 40, 0, u64::MAX)], &map).unwrap_err();
    assert_eq!(error, ListError::TooLarge);
    let twice = [row(0, 1, 0, u64::MAX - 1); 2];
    assert_eq!(build(&twice, &map).unwrap_err(), ListError::TooLarge);
}

#[test]
fn blocks_stay_in_their_region_while_it_covers_them() {
    let map = map(&[(1, 0, 100), (2, 0, 1000)]);
    let ids = |blocks: &[Block]| -> Vec<u64> {
        let list = build(blocks, &map).unwrap();
        (0..list.len()).map(|n| list.regions()[list.get(n).unwrap().slot as usize].id.0).collect()
    };
    assert_eq!(ids(&[block(0, 10), block(500, 10), block(0, 10)]), [1, 2, 2]);
}

#[derive(Debug, Clone)]
enum Given {
    Flat(Vec<Block>),
    Grid(Vec<GridRow>),
}

fn given() -> impl Strategy<Value = Given> {
    let len = prop_oneof![Just(8_u64), 1_u64..40];
    let flat = prop::collection::vec((0_u64..900, len.clone()), 0..40)
        .prop_map(|list| list.iter().map(|&(start, len)| block(start, len)).collect());
    // Runs, so that folding has something to fold.
    let runs = prop::collection::vec((0_u64..500, 1_u64..40, 0_u64..6), 0..10).prop_map(|runs| {
        runs.iter()
            .flat_map(|&(start, stride, count)| (0..count).map(move |n| block(start + n * stride, 8)))
            .collect()
    });
    let grid = prop::collection::vec((0_u64..900, len, 0_u64..60, 0_u64..12), 0..12).prop_map(|rows| {
        rows.iter().map(|&(start, len, stride, count)| row(start, len, stride, count)).collect()
    });
    prop_oneof![flat.prop_map(Given::Flat), runs.prop_map(Given::Flat), grid.prop_map(Given::Grid)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn a_list_is_what_was_given(
        given in given(),
        regions in prop::collection::vec((0_u64..900, 1_u64..1000), 1..6),
    ) {
        let regions: Vec<_> = regions
            .iter()
            .enumerate()
            .map(|(n, &(start, len))| (n as u64 * 7 % 5, start, len))
            .collect();
        let map = map(&regions);
        let (result, expanded) = match &given {
            Given::Flat(blocks) => (build(blocks, &map), blocks.clone()),
            Given::Grid(rows) => {
                let expanded = rows
                    .iter()
                    .flat_map(|r| (0..r.count).map(move |n| block(r.addr - BASE + n * r.stride, r.len)))
                    .collect();
                (build(rows, &map), expanded)
            }
        };
        let covers = |b: &Block| {
            regions.iter().any(|&(_, start, len)| {
                BASE + start <= b.addr && b.addr + b.len <= BASE + start + len
            })
        };
        let outside = expanded.iter().position(|b| !covers(b));
        let list = match (result, outside) {
            (Ok(list), None) => list,
            (Err(ListError::Bounds { at, .. }), Some(index)) => {
                prop_assert_eq!(at.index, index as u64);
                prop_assert_eq!(at.addr, expanded[index].addr);
                return Ok(());
            }
            (result, outside) => {
                return Err(TestCaseError::fail(format!("{result:?}, {outside:?}")));
            }
        };
        prop_assert_eq!(list.len(), expanded.len() as u64);
        prop_assert_eq!(list.bytes(), expanded.iter().map(|b| b.len).sum::<u64>());
        for (n, block) in expanded.iter().enumerate() {
            let found = list.get(n as u64).unwrap();
            prop_assert_eq!((found.addr, found.len), (block.addr, block.len));
            let region = list.regions()[found.slot as usize].desc;
            prop_assert!(region.addr <= found.addr);
            prop_assert!(found.addr + found.len <= region.addr + region.len);
        }
        let uniform = expanded.first().map(|b| b.len).filter(|&len| expanded.iter().all(|b| b.len == len));
        prop_assert_eq!(list.uniform_len(), uniform);
        let shared = |a: &Block, b: &Block| a.addr.max(b.addr) < (a.addr + a.len).min(b.addr + b.len);
        let overlapping = expanded.iter().enumerate().any(|(n, a)| expanded[..n].iter().any(|b| shared(a, b)));
        prop_assert_eq!(list.overlap().is_some(), overlapping);
        if let Some((first, second)) = list.overlap() {
            prop_assert!(first < second);
            prop_assert!(shared(&expanded[first as usize], &expanded[second as usize]));
        }
    }
}
