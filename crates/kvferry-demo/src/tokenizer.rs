//! Text to tokens and back: the vocabulary of a GGUF file, or plain bytes for a random model.

use anyhow::{Context, Result, ensure};
use tokenizers::decoders::byte_level::ByteLevel;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::{AddedToken, PreTokenizerWrapper};

use crate::chat::ChatTemplate;
use crate::weights::Gguf;

/// GGUF's mark of a token that stands for itself and is never split.
const CONTROL_TOKEN: i64 = 3;

/// How a model reads and writes text.
pub(crate) enum Tokenizer {
    /// Byte-level BPE with the file's vocabulary and merges.
    Bpe(Box<Bpe>),
    /// One token a byte; what a random model says beyond that shows as a dot.
    Bytes,
}

/// What a model file says of its text.
pub(crate) struct Bpe {
    pipeline: tokenizers::Tokenizer,
    /// Turns the user's words into a conversation.
    chat: ChatTemplate,
    /// Ends an answer.
    end: Option<u32>,
}

impl Tokenizer {
    /// The tokenizer that a GGUF file describes.
    pub(crate) fn from_gguf(gguf: &Gguf) -> Result<Self> {
        let model = gguf.string("tokenizer.ggml.model")?;
        let pre = gguf.string("tokenizer.ggml.pre")?;
        ensure!(
            model == "gpt2" && pre == "smollm",
            "the model file's tokenizer is {model:?} with pre-tokenizer {pre:?}; this demo knows \
             \"gpt2\" with \"smollm\" only"
        );
        let tokens = gguf.strings("tokenizer.ggml.tokens")?;
        let merges = gguf
            .strings("tokenizer.ggml.merges")?
            .into_iter()
            .map(|merge| {
                let (left, right) = merge.split_once(' ').context("a merge without a space")?;
                Ok((left.to_owned(), right.to_owned()))
            })
            .collect::<Result<Vec<_>>>()?;
        let pipeline = pipeline(&tokens, &gguf.numbers("tokenizer.ggml.token_type")?, merges)?;
        Ok(Self::Bpe(Box::new(Bpe {
            pipeline,
            chat: ChatTemplate::new(gguf.string("tokenizer.chat_template")?)?,
            end: gguf.token("tokenizer.ggml.eos_token_id"),
        })))
    }

    /// The tokens of what a user says, put into the form in which the model expects a turn.
    pub(crate) fn turn(&self, text: &str) -> Result<Vec<u32>> {
        match self {
            Self::Bpe(bpe) => self.encode(&bpe.chat.apply(text)?),
            Self::Bytes => self.encode(text),
        }
    }

    /// The tokens of a text, special ones recognised.
    pub(crate) fn encode(&self, text: &str) -> Result<Vec<u32>> {
        match self {
            Self::Bpe(bpe) => {
                let encoding = bpe.pipeline.encode_fast(text, false).map_err(library_error)?;
                Ok(encoding.get_ids().to_vec())
            }
            Self::Bytes => Ok(text.bytes().map(u32::from).collect()),
        }
    }

    /// The text of tokens, special ones left out.
    pub(crate) fn decode(&self, tokens: &[u32]) -> Result<String> {
        match self {
            Self::Bpe(bpe) => bpe.pipeline.decode(tokens, true).map_err(library_error),
            Self::Bytes => {
                let printable = tokens.iter().map(|&token| match u8::try_from(token) {
                    Ok(byte) if byte.is_ascii_graphic() || byte == b' ' => char::from(byte),
                    _ => '·',
                });
                Ok(printable.collect())
            }
        }
    }

    /// The token that ends an answer; none where an answer only ends by its length.
    pub(crate) fn end(&self) -> Option<u32> {
        match self {
            Self::Bpe(bpe) => bpe.end,
            Self::Bytes => None,
        }
    }
}

/// Text that grows token by token: gives out what has become certain.
#[derive(Default)]
pub(crate) struct Stream {
    tokens: Vec<u32>,
    shown: usize,
}

impl Stream {
    /// Adds a token; returns the text that it completes, perhaps none.
    pub(crate) fn push(&mut self, tokenizer: &Tokenizer, token: u32) -> Result<String> {
        self.tokens.push(token);
        let text = tokenizer.decode(&self.tokens)?;
        // A character may be split over tokens; until it is whole it decodes to the replacement.
        if text.ends_with(char::REPLACEMENT_CHARACTER) || !text.is_char_boundary(self.shown) {
            return Ok(String::new());
        }
        let fresh = text.get(self.shown..).unwrap_or_default().to_owned();
        self.shown = text.len();
        Ok(fresh)
    }
}

/// Byte-level BPE as GGUF's "smollm" means it: each digit alone, then the bytes of words.
fn pipeline(tokens: &[&str], kinds: &[i64], merges: Vec<(String, String)>) -> Result<tokenizers::Tokenizer> {
    let vocabulary: Vocab = tokens.iter().zip(0..).map(|(token, id)| (String::from(*token), id)).collect();
    let bpe = BPE::builder().vocab_and_merges(vocabulary, merges).build().map_err(library_error)?;
    let mut pipeline = tokenizers::Tokenizer::new(bpe);
    pipeline.with_pre_tokenizer(Some(Sequence::new(vec![
        PreTokenizerWrapper::Digits(Digits::new(true)),
        PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, true, true)),
    ])));
    pipeline.with_decoder(Some(ByteLevel::default()));
    let control = tokens
        .iter()
        .zip(kinds)
        .filter(|(_, kind)| **kind == CONTROL_TOKEN)
        .map(|(token, _)| AddedToken::from(*token, true).normalized(false));
    pipeline.add_special_tokens(control).map_err(library_error)?;
    Ok(pipeline)
}

fn library_error(error: tokenizers::Error) -> anyhow::Error {
    anyhow::anyhow!("tokenizer: {error}")
}

#[cfg(test)]
mod tests;
