use super::*;

#[test]
fn bytes_go_round() {
    let text = "Alice, 42!";
    let tokens = Tokenizer::Bytes.turn(text).unwrap();
    assert_eq!(tokens.len(), text.len());
    assert_eq!(Tokenizer::Bytes.decode(&tokens).unwrap(), text);
    assert_eq!(Tokenizer::Bytes.decode(&[65, 300, 10]).unwrap(), "A··");
}

/// A BPE of a few merges, with the pipeline of the real one.
fn bpe() -> Tokenizer {
    let alphabet: Vec<String> =
        ["<|end|>", "a", "b", "c", "1", "2", "Ġ", "Ã", "©"].map(String::from).to_vec();
    let merges = [("a", "b"), ("Ġ", "ab"), ("1", "2"), ("ab", "c")];
    let mut tokens = alphabet;
    tokens.extend(merges.iter().map(|(left, right)| format!("{left}{right}")));
    let kinds = tokens.iter().map(|token| if token == "<|end|>" { CONTROL_TOKEN } else { 1 });
    let merges = merges.map(|(left, right)| (left.to_owned(), right.to_owned()));
    let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
    let pipeline = pipeline(&tokens, &kinds.collect::<Vec<_>>(), merges.to_vec()).unwrap();
    let chat =
        ChatTemplate::new("{{ messages[0].content }}<|end|>{% if add_generation_prompt %}a{% endif %}");
    Tokenizer::Bpe(Box::new(Bpe { pipeline, chat: chat.unwrap(), end: Some(0) }))
}

#[test]
fn words_are_merged_and_digits_are_not() {
    let tokenizer = bpe();
    let encode = |text: &str| tokenizer.encode(text).unwrap();
    assert_eq!(encode("abc"), [12]);
    assert_eq!(encode("ab ab"), [9, 10]);
    assert_eq!(encode("12"), [4, 5]);
    assert_eq!(encode("ab<|end|>c"), [9, 0, 3]);
}

#[test]
fn a_turn_takes_the_form_of_the_chat() {
    assert_eq!(bpe().turn("ab").unwrap(), [9, 0, 1]);
}

#[test]
fn text_goes_round_without_special_tokens() {
    let tokenizer = bpe();
    let tokens = tokenizer.encode("abc é 12<|end|>").unwrap();
    assert_eq!(tokenizer.decode(&tokens).unwrap(), "abc é 12");
}

#[test]
fn a_character_split_over_tokens_is_shown_once_it_is_whole() {
    let tokenizer = bpe();
    let mut stream = Stream::default();
    let pieces: Vec<String> =
        [1, 7, 8, 6, 2].iter().map(|token| stream.push(&tokenizer, *token).unwrap()).collect();
    assert_eq!(pieces, ["a", "", "é", " ", "b"]);
}

#[test]
fn a_broken_chat_template_is_an_error() {
    assert!(ChatTemplate::new("{% for %}").is_err());
    assert!(ChatTemplate::new("{{ raise_exception('no') }}").unwrap().apply("x").is_err());
}
