use super::*;

pub(crate) fn rate() -> Row {
    Row {
        pattern: Pattern::C,
        blocks: None,
        op: RowOp::Write,
        path: "same_host".to_owned(),
        mechanism: "cma".to_owned(),
        memory: Memory::Private,
        measure: Measure::Rate { gbps_median: 2.71654, gbps_min: 2.0, gbps_max: 3.14456 },
        limit: Limit::Cma,
        limit_median: 3.0,
        ratio: 0.90609,
        cpu_s_per_gb: Some(0.333333),
        verified: true,
    }
}

#[test]
fn json_has_the_keys_of_its_kind_and_no_others() {
    assert_eq!(
        serde_json::to_string(&rate()).expect("json"),
        r#"{"pattern":"c","op":"write","path":"same_host","mechanism":"cma","memory":"private","gbps_median":2.717,"gbps_min":2.0,"gbps_max":3.145,"limit":"cma","limit_median":3.0,"ratio":0.906,"cpu_s_per_gb":0.333,"verified":true}"#
    );
    let row = Row {
        pattern: Pattern::P,
        blocks: Some(1_000),
        measure: Measure::Time { p50_us: 0.0123456, p99_us: 12.3456 },
        limit: Limit::PingPong,
        cpu_s_per_gb: None,
        ..rate()
    };
    assert_eq!(
        serde_json::to_string(&row).expect("json"),
        r#"{"pattern":"p","blocks":1000,"op":"write","path":"same_host","mechanism":"cma","memory":"private","p50_us":0.012346,"p99_us":12.346,"limit":"pingpong","limit_median":3.0,"ratio":0.906,"cpu_s_per_gb":null,"verified":true}"#
    );
}
