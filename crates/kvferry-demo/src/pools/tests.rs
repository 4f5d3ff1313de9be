use super::*;

const PAGE_SIZE: usize = 4;

fn pools(pages: usize) -> KvPools {
    KvPools::new(&Shape::tiny(), PAGE_SIZE, pages, PoolMemory::private).unwrap()
}

/// Rows of `tokens` tokens, each element a number of its own.
fn rows(tokens: usize, seed: usize) -> Vec<f32> {
    (0..tokens * Shape::tiny().kv_row()).map(|n| (seed * 10_000 + n) as f32).collect()
}

#[test]
fn what_is_stored_in_pieces_is_gathered_in_order() {
    let mut pools = pools(8);
    let table = BlockTable::new(PAGE_SIZE, vec![5, 0, 7, 2]);
    let all = rows(13, 1);
    let row = Shape::tiny().kv_row();
    for (start, end) in [(0, 3), (3, 9), (9, 10), (10, 13)] {
        pools.store(1, Kind::V, &table, start, &all[start * row..end * row]);
    }
    assert_eq!(pools.gather(1, Kind::V, &table, 13), all);
    assert_eq!(pools.gather(1, Kind::V, &table, 6), all[..6 * row]);
}

#[test]
fn a_page_lies_where_its_number_says() {
    let mut pools = pools(8);
    let table = BlockTable::new(PAGE_SIZE, vec![5, 3]);
    let all = rows(8, 2);
    pools.store(2, Kind::K, &table, 0, &all);
    let mut bytes = vec![0; pools.page_bytes()];
    pools.memories()[4].copy_out(3 * pools.page_bytes(), &mut bytes);
    assert_eq!(bytes, bytemuck::cast_slice::<f32, u8>(&all[4 * Shape::tiny().kv_row()..]));
}

#[test]
fn layers_and_kinds_are_apart_and_the_rest_is_poison() {
    let mut pools = pools(4);
    let table = BlockTable::new(PAGE_SIZE, vec![1]);
    pools.store(0, Kind::K, &table, 0, &rows(2, 3));
    let row = Shape::tiny().kv_row();
    assert!(pools.gather(0, Kind::K, &table, 2).iter().all(|x| x.is_finite()));
    assert!(pools.gather(0, Kind::K, &table, 4)[2 * row..].iter().all(|x| x.is_nan()));
    assert!(pools.gather(0, Kind::V, &table, 4).iter().all(|x| x.is_nan()));
    assert!(pools.gather(1, Kind::K, &table, 4).iter().all(|x| x.is_nan()));
}

#[test]
fn one_bit_changes_one_hash() {
    let mut pools = pools(4);
    let pages = [3, 1];
    let before = pools.page_hashes(&pages);
    assert_eq!(before.len(), Shape::tiny().pools() * pages.len());
    pools.flip_bit(2, Kind::V, 1, 8 * pools.page_bytes() - 1);
    let after = pools.page_hashes(&pages);
    let changed: Vec<usize> = (0..before.len()).filter(|&n| before[n] != after[n]).collect();
    assert_eq!(changed, [(2 * 2 + 1) * 2 + 1]);
    pools.flip_bit(2, Kind::V, 1, 8 * pools.page_bytes() - 1);
    assert_eq!(pools.page_hashes(&pages), before);
}

#[test]
#[should_panic(expected = "beyond a pool")]
fn a_copy_beyond_a_pool_is_refused() {
    let pools = pools(1);
    let end = pools.page_bytes();
    pools.memories()[0].copy_out(end - 3, &mut [0; 4]);
}
