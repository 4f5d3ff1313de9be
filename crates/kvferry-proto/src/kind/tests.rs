use super::*;

#[test]
fn numbers_are_the_wire_form() {
    for (number, kind) in MemoryKind::ALL.into_iter().enumerate() {
        assert_eq!(usize::from(u8::from(kind)), number);
        assert_eq!(MemoryKind::try_from(number as u8), Ok(kind));
        assert_eq!(postcard::to_stdvec(&kind).unwrap(), [number as u8]);
    }
    for op in [Op::Read, Op::Write] {
        assert_eq!(Op::try_from(u8::from(op)), Ok(op));
    }
}

#[test]
fn unknown_numbers_are_errors() {
    assert_eq!(MemoryKind::try_from(5).unwrap_err().to_string(), "5 is no memory kind");
    assert!(postcard::from_bytes::<MemoryKind>(&[200]).is_err());
    assert!(postcard::from_bytes::<Op>(&[2]).is_err());
}

#[test]
fn kinds_print_in_upper_case() {
    let names: Vec<_> = MemoryKind::ALL.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["DRAM", "VRAM", "FILE", "BLOCK", "OBJECT"]);
    assert_eq!(format!("{:>6}", Op::Read), "  READ");
}
