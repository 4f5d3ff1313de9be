use super::*;

#[test]
fn blocks_are_counted_over_all_rows() {
    let block = Block { addr: 0, len: 1, device: 0 };
    let row = GridRow { addr: 0, len: 1, device: 0, stride: 1, count: 5 };
    assert_eq!(Blocks::from(&[block; 3]).count(), 3);
    assert_eq!(Blocks::from(&vec![row; 2]).count(), 10);
    let endless = GridRow { count: u64::MAX, ..row };
    assert_eq!(Blocks::from(&[endless, row][..]).count(), u64::MAX);
}
