use std::convert::Infallible;

use super::*;

fn written(sections: &[(u16, bool, &[u8])]) -> Vec<u8> {
    let mut out = b"head".to_vec();
    for &(id, critical, payload) in sections {
        let Ok(()) = push_section::<Infallible>(&mut out, id, critical, |out| {
            out.extend_from_slice(payload);
            Ok(())
        });
    }
    out
}

#[test]
fn sections_come_back_in_order() {
    let data = written(&[(1, true, b"one"), (0x7fff, false, b""), (1, false, b"again")]);
    let sections: Vec<_> = Sections::new(&data, 4).map(Result::unwrap).collect();
    assert_eq!(
        sections.iter().map(|s| (s.id, s.critical, s.payload)).collect::<Vec<_>>(),
        [(1, true, &b"one"[..]), (0x7fff, false, b""), (1, false, b"again")]
    );
    assert_eq!(sections[1].at, 4 + 6 + 3 + 6);
    assert_eq!(Sections::new(&data, data.len()).next(), None);
}

#[test]
fn a_cut_is_an_error_at_the_section_and_the_last_item() {
    let data = written(&[(1, true, b"one"), (2, false, b"two")]);
    for end in 14..data.len() {
        let items: Vec<_> = Sections::new(&data[..end], 4).collect();
        assert_eq!(items.len(), 2, "{end}");
        assert_eq!(items[1], Err(CutShort { at: 13 }));
    }
    let mut endless = data;
    endless[6..10].copy_from_slice(&[0xff; 4]);
    assert_eq!(Sections::new(&endless, 4).collect::<Vec<_>>(), [Err(CutShort { at: 4 })]);
}
