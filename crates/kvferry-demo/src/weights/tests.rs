use std::io::Write;

use candle_core::quantized::gguf_file;
use candle_core::quantized::{GgmlDType, QTensor};

use super::*;

/// Bytes of such a file before its tensors, at least.
const HEADER: usize = 2_000;

/// A tiny model as a GGUF file, after `change` had its way with the metadata.
fn gguf(change: impl Fn(&mut Vec<(&'static str, Value)>)) -> Vec<u8> {
    let shape = Shape::tiny();
    let mut metadata = vec![
        ("general.architecture", Value::String("llama".into())),
        ("llama.block_count", Value::U32(shape.layers as u32)),
        ("llama.embedding_length", Value::U32(shape.dim as u32)),
        ("llama.attention.head_count", Value::U32(shape.heads as u32)),
        ("llama.attention.head_count_kv", Value::U32(shape.kv_heads as u32)),
        ("llama.feed_forward_length", Value::U32(shape.ffn as u32)),
        ("llama.vocab_size", Value::U32(shape.vocab as u32)),
        ("llama.context_length", Value::U32(shape.context as u32)),
        ("llama.rope.freq_base", Value::F32(shape.rope_theta)),
        ("llama.attention.layer_norm_rms_epsilon", Value::F32(shape.norm_eps)),
    ];
    change(&mut metadata);
    let weights = tiny();
    let mut tensors = vec![
        ("token_embd.weight".to_owned(), &weights.embed),
        ("output_norm.weight".to_owned(), &weights.norm),
    ];
    for (index, layer) in weights.layers.iter().enumerate() {
        for (name, tensor) in [
            ("attn_norm", &layer.attn_norm),
            ("attn_q", &layer.q),
            ("attn_k", &layer.k),
            ("attn_v", &layer.v),
            ("attn_output", &layer.o),
            ("ffn_norm", &layer.ffn_norm),
            ("ffn_gate", &layer.gate),
            ("ffn_up", &layer.up),
            ("ffn_down", &layer.down),
        ] {
            tensors.push((format!("blk.{index}.{name}.weight"), tensor));
        }
    }
    let tensors: Vec<(String, QTensor)> = tensors
        .into_iter()
        .map(|(name, tensor)| (name, QTensor::quantize(tensor, GgmlDType::F32).unwrap()))
        .collect();
    let metadata: Vec<(&str, &Value)> = metadata.iter().map(|(key, value)| (*key, value)).collect();
    let tensors: Vec<(&str, &QTensor)> =
        tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let mut file = std::io::Cursor::new(Vec::new());
    gguf_file::write(&mut file, &metadata, &tensors).unwrap();
    file.into_inner()
}

fn tiny() -> Weights {
    Weights::load(&Source::Random { shape: Shape::tiny(), seed: 3 }).unwrap()
}

/// Loads a file of these bytes; the error as it is shown.
fn load(bytes: &[u8]) -> Result<Weights, String> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    Weights::load(&Source::Gguf(file.path().to_owned())).map_err(|error| format!("{error:#}"))
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

#[test]
fn a_file_gives_back_what_was_written() {
    let (written, loaded) = (tiny(), load(&gguf(|_| {})).unwrap());
    assert_eq!(loaded.shape, Shape::tiny());
    assert_eq!(values(&loaded.head), values(&written.embed));
    for (loaded, written) in loaded.layers.iter().zip(&written.layers) {
        assert_eq!(values(&loaded.q), values(&written.q));
        assert_eq!(values(&loaded.down), values(&written.down));
    }
}

#[test]
fn a_seed_gives_the_same_weights_each_time() {
    assert_eq!(values(&tiny().layers[2].up), values(&tiny().layers[2].up));
    let other = Weights::load(&Source::Random { shape: Shape::tiny(), seed: 4 }).unwrap();
    assert_ne!(values(&tiny().embed), values(&other.embed));
}

#[test]
fn models_that_cannot_run_here_are_refused_by_name() {
    let replace = |key: &'static str, value: Value| {
        load(&gguf(|metadata| {
            metadata.retain(|(name, _)| *name != key);
            metadata.push((key, value.clone()));
        }))
        .err()
        .unwrap()
    };
    for (key, value, expected) in [
        ("general.architecture", Value::String("mamba".into()), "architecture \"mamba\""),
        ("llama.attention.head_count", Value::U32(0), "llama.attention.head_count must be a whole number"),
        ("llama.attention.head_count", Value::U32(7), "does not divide evenly"),
        ("llama.attention.head_count_kv", Value::U32(3), "does not divide evenly"),
        ("llama.block_count", Value::U32(u32::MAX), "llama.block_count must be a whole number from 1 to 256"),
        ("llama.block_count", Value::U32(4), "lacks the tensor blk.3.attn_norm.weight"),
        ("llama.vocab_size", Value::U32(9), "token_embd.weight has the shape"),
        ("llama.rope.freq_base", Value::F32(f32::NAN), "must be a finite number"),
        ("llama.rope.freq_base", Value::Bool(true), "must be a finite number"),
    ] {
        let error = replace(key, value);
        assert!(error.contains(expected), "{key}: {error}");
    }
    let lacking = load(&gguf(|metadata| metadata.retain(|(name, _)| *name != "llama.context_length")));
    assert!(lacking.err().unwrap().ends_with("lacks llama.context_length"));
}

#[test]
fn damaged_files_are_errors_and_never_panics() {
    let whole = gguf(|_| {});
    for cut in (0..whole.len()).step_by(997).chain(0..64) {
        assert!(load(&whole[..cut]).is_err(), "cut at {cut}");
    }
    let mut rng = Rng::new(1);
    for _ in 0..300 {
        let mut bytes = whole.clone();
        let at = rng.next_u64() as usize % HEADER;
        bytes[at] ^= 1 << (rng.next_u64() % 8);
        // Some changes do no harm; none may panic.
        let _ = load(&bytes);
    }
}

#[test]
fn an_alignment_of_zero_is_an_error() {
    let error = load(&gguf(|metadata| metadata.push(("general.alignment", Value::U32(0)))));
    assert!(error.err().unwrap().ends_with("is not a readable GGUF file: its header makes no sense"));
}
