use super::*;
use crate::testing::{LonePage, buffers};

#[test]
fn a_layout_survives_the_way_to_the_peer() {
    let page = LonePage::new();
    let mut buffers = buffers(&page);
    buffers.aux[1].ptr = 0;
    let layout = PeerLayout::of(&buffers);
    let bytes = postcard::to_stdvec(&layout).expect("encodes");
    let arrived: PeerLayout = postcard::from_bytes(&bytes).expect("decodes");
    assert_eq!(arrived, layout);
    assert_eq!((arrived.aux[1].ptr, arrived.aux[1].len, arrived.aux.len()), (0, 0, 5));
    assert_eq!(arrived.pages().expect("whole pages").pages(), 10);
}
