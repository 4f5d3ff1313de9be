use super::*;

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
    assert_eq!(remedy("buffers.nonsense"), "");
}

#[test]
fn an_agent_that_registers_nothing_is_passed_on() {
    let error = WorkerBuffersError::Agent(RegisterError::Forked);
    assert_eq!(error.to_string(), RegisterError::Forked.to_string());
    assert_eq!((error.code(), error.fault()), ("agent.forked", None));
    assert!(error.remedy().contains("in the child"));
}
