use super::*;

#[test]
fn runs_cover_a_range_page_by_page() {
    let table = BlockTable::new(4, vec![7, 2, 9]);
    let runs: Vec<_> = table.runs(3, 6).map(|r| (r.page, r.slot, r.len)).collect();
    assert_eq!(runs, [(7, 3, 1), (2, 0, 4), (9, 0, 1)]);
    assert_eq!(table.runs(5, 0).count(), 0);
    assert_eq!(table.room(), 12);
}

#[test]
fn pages_are_handed_out_once_each() {
    for mut free in [FreePages::in_order(10), FreePages::shuffled(10, 3)] {
        let first = free.take(9, 4).unwrap();
        let second = free.take(28, 4).unwrap();
        let mut all = [first.pages(), second.pages()].concat();
        all.sort_unstable();
        assert_eq!(all, (0..10).collect::<Vec<_>>());
        assert!(free.take(1, 4).is_err());
    }
}

#[test]
fn shuffled_pages_are_neither_in_order_nor_by_chance() {
    let mut shuffled = FreePages::shuffled(64, 5);
    let table = shuffled.take(64, 1).unwrap();
    assert_ne!(table.pages(), FreePages::in_order(64).take(64, 1).unwrap().pages());
    assert_eq!(table, FreePages::shuffled(64, 5).take(64, 1).unwrap());
}
