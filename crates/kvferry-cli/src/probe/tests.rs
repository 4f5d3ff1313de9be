use super::*;

fn outcomes() -> Vec<(&'static str, Outcome)> {
    let moved = Moved {
        path: "same_host".to_owned(),
        mechanism: "map".to_owned(),
        executor: "initiator".to_owned(),
        write_gbps: 7.914,
        read_gbps: 8.0,
    };
    let refusal = Refusal {
        code: "connect.path_required".to_owned(),
        cause: "seccomp forbids process_vm_readv".to_owned(),
        remedy: "Allow it.".to_owned(),
    };
    vec![("map", Ok(moved)), ("cma", Err(refusal))]
}

#[test]
fn text_names_speed_or_cause_and_remedy() {
    assert_eq!(
        as_text(&outcomes(), 64),
        "same_host map: WRITE 7.91 GB/s, READ 8.00 GB/s (64 MiB in 64 KiB blocks, copied by the initiator, every \
         byte compared)\n\
         same_host cma: no: seccomp forbids process_vm_readv (connect.path_required)\n  what to do: Allow it.\n"
    );
}

#[test]
fn json_is_one_object_a_line() {
    let text = as_json(&outcomes(), false);
    assert_eq!(text.lines().count(), 1);
    let value: serde_json::Value = serde_json::from_str(&text).expect("json");
    assert_eq!(value["ok"], false);
    assert_eq!(value["same_host"][0]["write_gbps"], 7.914);
    assert_eq!(value["same_host"][1]["code"], "connect.path_required");
}
