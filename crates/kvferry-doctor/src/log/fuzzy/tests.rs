use super::*;

#[test]
fn words_in_another_order_are_still_alike() {
    let fuzzy = Fuzzy::new(Catalogue::built_in());
    let near = |line: &str| {
        fuzzy
            .nearest(line.as_bytes())
            .map(|(index, _)| Catalogue::built_in().entries()[index].record.slug.clone())
    };
    let slug = near(
        "the page size of the decode server mismatches that of prefill server: page_size must be the same, both servers",
    );
    assert!(slug.is_some_and(|slug| slug.starts_with("page-size-mismatch")));
    assert_eq!(near("the quick brown fox jumps over the lazy dog"), None);
    assert_eq!(near("error error error"), None);
    assert_eq!(near(""), None);
}
