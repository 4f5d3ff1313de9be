use super::*;

#[test]
fn near_codes_are_found_by_word_and_by_spelling() {
    assert_eq!(nearest("unmapped"), ["register.unmapped", "region.unmapped"]);
    assert_eq!(nearest("register.unmaped")[0], "register.unmapped");
    assert_eq!(nearest("post.blacklog")[0], "post.backlog");
    assert_eq!(nearest("Overlapp")[0], "transfer.overlap");
    assert_eq!(nearest("zzzzzzzz"), [""; 0]);
    assert_eq!(nearest(""), [""; 0]);
    assert_eq!(nearest(&"ü".repeat(100_000)), [""; 0]);
}

#[test]
fn a_list_holds_every_code() {
    assert_eq!(list(Code::all()).lines().count(), Code::all().len());
}
