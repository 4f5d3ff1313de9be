use super::*;
use crate::pages::{LayoutMismatch, PageError};

#[test]
fn every_code_is_in_the_catalogue() {
    let causes = [
        BufferCause::Register(RegisterCause::Null),
        BufferCause::ItemLength { len: 5, item_len: 2 },
        BufferCause::NotOwned,
    ];
    for cause in causes {
        assert!(Code::find(cause.code()).is_some(), "{}", cause.code());
    }
    let (layer, part) = (0, KvPart::K);
    let pages = [
        PageError::ItemLength { layer, part, len: 5, item_len: 2 },
        PageError::Overflow { layer, part },
        PageError::Kinds { layer, part, kind: MemoryKind::Vram, before: MemoryKind::Dram },
        PageError::TooMany,
        PageError::Page { page: 1, layer, part, pages: 1 },
    ];
    for error in pages {
        assert!(Code::find(error.code()).is_some(), "{error}");
        assert!(error.to_string().ends_with(&format!(" ({})", error.code())), "{error}");
    }
    assert!(Code::find(LayoutMismatch::Pools { ours: 1, theirs: 2 }.code()).is_some());
    assert_eq!(remedy("buffers.nonsense"), "");
}

#[test]
fn an_agent_that_registers_nothing_is_passed_on() {
    let error = WorkerBuffersError::Agent(RegisterError::Forked);
    assert_eq!(error.to_string(), RegisterError::Forked.to_string());
    assert_eq!((error.code(), error.fault()), ("agent.forked", None));
    assert!(error.remedy().contains("in the child"));
}
