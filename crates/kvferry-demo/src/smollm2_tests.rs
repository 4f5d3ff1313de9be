//! Against the real weights: what the tokenizer and the forward pass are known to give. The token
//! numbers are those of the transformers library in f32 on the same weights.

use std::path::PathBuf;

use crate::block_table::FreePages;
use crate::memory::PoolMemory;
use crate::model::Model;
use crate::pools::KvPools;
use crate::sequence::Sequence;
use crate::tokenizer::{Stream, Tokenizer};
use crate::weights::{Gguf, Source, Weights};

const QUESTION: &str = "Explain in two sentences why the sky is blue.";

/// The question as the chat template puts it.
const PROMPT: [u32; 40] = [
    1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182,
    2, 198, 1, 4093, 198, 36971, 281, 827, 8545, 1701, 260, 6376, 314, 4461, 30, 2, 198, 1, 520, 9531, 198,
];

/// "The sky is blue because of a process called Rayleigh scattering, where light encounters tiny
/// molecules of air and is deflected by them."
const ANSWER: [u32; 27] = [
    504, 6376, 314, 4461, 975, 282, 253, 980, 1217, 13739, 43464, 24484, 28, 837, 1420, 13242, 5383, 6756,
    282, 1512, 284, 314, 753, 6475, 411, 601, 30,
];

/// The real model's file, as in `tests/processes/smollm2.rs`.
fn path() -> Option<PathBuf> {
    let fetched = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/model/SmolLM2-135M-Instruct.Q4_1.gguf");
    let path = std::env::var_os("KVFERRY_DEMO_MODEL").map_or_else(|| PathBuf::from(fetched), PathBuf::from);
    let found = path.is_file();
    if !found {
        println!("skipped: no model file at {}; set KVFERRY_DEMO_MODEL", path.display());
    }
    found.then_some(path)
}

#[test]
fn the_real_tokenizer_goes_round() {
    let Some(path) = path() else { return };
    let tokenizer = Tokenizer::from_gguf(&Gguf::open(&path).unwrap()).unwrap();
    assert_eq!(tokenizer.turn(QUESTION).unwrap(), PROMPT);
    assert_eq!(tokenizer.end(), Some(2));
    let passage = include_str!("../../../assets/alice.txt");
    let tokens = tokenizer.encode(passage).unwrap();
    assert!((1_000..1_500).contains(&tokens.len()), "{} tokens", tokens.len());
    assert_eq!(tokenizer.decode(&tokens).unwrap(), passage);
    let odd = "naïve café, 1865: ≈ 3.14 — 你好 🐇\n\ttab";
    let tokens = tokenizer.encode(odd).unwrap();
    let mut stream = Stream::default();
    let pieces: Vec<String> = tokens.iter().map(|token| stream.push(&tokenizer, *token).unwrap()).collect();
    assert_eq!(pieces.concat(), odd);
    // Each digit is a token of its own.
    assert_eq!(tokenizer.encode("1865").unwrap().len(), 4);
}

#[test]
fn the_real_weights_give_the_known_tokens() {
    let Some(path) = path() else { return };
    let model = Model::new(Weights::load(&Source::Gguf(path)).unwrap()).unwrap();
    let mut pools = KvPools::new(model.shape(), 16, 8, PoolMemory::private).unwrap();
    let mut sequence = Sequence::new(FreePages::shuffled(8, 1).take(PROMPT.len() + 27, 16).unwrap());
    sequence.absorb(&model, &mut pools, &PROMPT[..25]).unwrap();
    let mut tokens = vec![sequence.advance(&model, &mut pools, &PROMPT[25..]).unwrap()];
    while tokens.len() < ANSWER.len() {
        let token = sequence.advance(&model, &mut pools, &tokens[tokens.len() - 1..]).unwrap();
        tokens.push(token);
    }
    assert_eq!(tokens, ANSWER);
}
