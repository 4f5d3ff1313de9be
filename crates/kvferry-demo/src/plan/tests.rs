use clap::Parser;

use super::*;

fn plan(args: &[&str]) -> Result<Plan> {
    Plan::new(&Cli::parse_from([&["kvferry-demo", "--tiny"], args].concat()))
}

/// Transfers of a prompt, chunk by chunk.
fn transfers(tokens: usize, chunk: usize, page_size: usize) -> usize {
    let mut computed = 0;
    let mut posted = 0;
    let mut transfers = 0;
    while computed < tokens {
        computed = (computed + chunk).min(tokens);
        let complete = match computed == tokens {
            true => tokens.div_ceil(page_size),
            false => computed / page_size,
        };
        transfers += usize::from(complete > posted);
        posted = complete;
    }
    transfers
}

#[test]
fn transfers_are_counted_before_they_happen() {
    for tokens in [1, 15, 16, 17, 128, 129, 300] {
        for chunk in [1, 7, 16, 128, 400] {
            for page_size in [1, 5, 16, 100, 1_024] {
                let (prompt, chunk, page_size) = ("x".repeat(tokens), chunk, page_size);
                let flags = [format!("--chunk={chunk}"), format!("--page-size={page_size}")];
                let plan = plan(&["--prompt", &prompt, &flags[0], &flags[1]]).unwrap();
                let expected = transfers(tokens, chunk, page_size);
                assert_eq!(plan.transfers(), expected, "{tokens} tokens, {flags:?}");
            }
        }
    }
}

#[test]
fn requests_differ_and_each_has_its_pages() {
    for args in [&["--requests=6"] as &[&str], &["--requests=3", "--prompt=same"]] {
        let plan = plan(args).unwrap();
        for (index, prompt) in plan.prompts.iter().enumerate() {
            assert!(!plan.prompts[..index].contains(prompt), "request {index} of {args:?}");
        }
        let pages = |extra: usize| -> usize {
            plan.prompts.iter().map(|prompt| (prompt.len() + extra).div_ceil(16)).sum()
        };
        assert_eq!(plan.setup(Role::Prefill).pages, pages(0) + SPARE_PAGES);
        assert_eq!(plan.setup(Role::Decode).pages, pages(64) + SPARE_PAGES);
    }
}

#[test]
fn what_memory_cannot_hold_is_refused() {
    let plan = plan(&["--requests=4"]).unwrap();
    let wanted = plan.memory_wanted().unwrap();
    assert!(plan.check_memory(Some(wanted)).is_ok());
    assert!(plan.check_memory(None).is_ok());
    let error = plan.check_memory(Some(wanted - 1)).unwrap_err();
    assert!(error.downcast_ref::<Misuse>().is_some());
    assert!(error.to_string().contains("give fewer --requests or a shorter prompt"), "{error}");
}

#[test]
fn the_context_is_kept() {
    assert!(plan(&["--prompt", &"x".repeat(8_192 - 64)]).is_ok());
    assert!(plan(&["--prompt", &"x".repeat(8_192 - 63)]).is_err());
}
