//! A model's weights in f32: from a GGUF file, or seeded random ones of the same shape.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use candle_core::quantized::gguf_file::{Content, Value};
use candle_core::{Device, Tensor};
use serde::{Deserialize, Serialize};

use crate::rng::Rng;
use crate::shape::Shape;

/// Where the weights come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Source {
    /// A GGUF file of a Llama model.
    Gguf(PathBuf),
    /// Seeded random weights of this shape.
    Random {
        /// Sizes.
        shape: Shape,
        /// Seed; the same one gives the same bits in each process.
        seed: u64,
    },
}

/// All tensors of a model, f32, on the CPU. Matrices are (out, in), as stored.
pub(crate) struct Weights {
    pub(crate) shape: Shape,
    pub(crate) embed: Tensor,
    pub(crate) norm: Tensor,
    /// The output head; the same tensor as `embed` where the two are tied.
    pub(crate) head: Tensor,
    pub(crate) layers: Vec<LayerWeights>,
}

/// One layer. The rows of `q` and `k` are ordered for interleaved rotary pairs (2i, 2i + 1).
pub(crate) struct LayerWeights {
    pub(crate) attn_norm: Tensor,
    pub(crate) q: Tensor,
    pub(crate) k: Tensor,
    pub(crate) v: Tensor,
    pub(crate) o: Tensor,
    pub(crate) ffn_norm: Tensor,
    pub(crate) gate: Tensor,
    pub(crate) up: Tensor,
    pub(crate) down: Tensor,
}

impl Weights {
    /// Loads or makes the weights.
    pub(crate) fn load(source: &Source) -> Result<Self> {
        match source {
            Source::Gguf(path) => Self::from_gguf(path),
            Source::Random { shape, seed } => Self::random(shape, *seed),
        }
    }

    fn from_gguf(path: &Path) -> Result<Self> {
        let mut gguf = Gguf::open(path)?;
        let shape = gguf.shape()?;
        let (d, kv) = (shape.dim, shape.kv_row());
        let embed = gguf.tensor("token_embd.weight", &[shape.vocab, d])?;
        let head = match gguf.has("output.weight") {
            true => gguf.tensor("output.weight", &[shape.vocab, d])?,
            false => embed.clone(),
        };
        let norm = gguf.tensor("output_norm.weight", &[d])?;
        let mut layers = Vec::with_capacity(shape.layers);
        for layer in 0..shape.layers {
            let mut get =
                |part: &str, dims: &[usize]| gguf.tensor(&format!("blk.{layer}.{part}.weight"), dims);
            layers.push(LayerWeights {
                attn_norm: get("attn_norm", &[d])?,
                q: get("attn_q", &[shape.heads * shape.head_dim, d])?,
                k: get("attn_k", &[kv, d])?,
                v: get("attn_v", &[kv, d])?,
                o: get("attn_output", &[d, shape.heads * shape.head_dim])?,
                ffn_norm: get("ffn_norm", &[d])?,
                gate: get("ffn_gate", &[shape.ffn, d])?,
                up: get("ffn_up", &[shape.ffn, d])?,
                down: get("ffn_down", &[d, shape.ffn])?,
            });
        }
        Ok(Self { shape, embed, norm, head, layers })
    }

    fn random(shape: &Shape, seed: u64) -> Result<Self> {
        let mut rng = Rng::new(seed);
        let (d, kv) = (shape.dim, shape.kv_row());
        // Uniform with the variance 1 / columns keeps the residual stream near unit size.
        let mut matrix = |rows: usize, columns: usize| {
            let scale = (3.0 / columns as f32).sqrt();
            let values = (0..rows * columns).map(|_| rng.unit() * scale).collect();
            Tensor::from_vec::<_, f32>(values, (rows, columns), &Device::Cpu)
        };
        let ones = || Tensor::from_vec(vec![1f32; d], d, &Device::Cpu);
        let embed = matrix(shape.vocab, d)?;
        let mut layers = Vec::with_capacity(shape.layers);
        for _ in 0..shape.layers {
            layers.push(LayerWeights {
                attn_norm: ones()?,
                q: matrix(shape.heads * shape.head_dim, d)?,
                k: matrix(kv, d)?,
                v: matrix(kv, d)?,
                o: matrix(d, shape.heads * shape.head_dim)?,
                ffn_norm: ones()?,
                gate: matrix(shape.ffn, d)?,
                up: matrix(shape.ffn, d)?,
                down: matrix(d, shape.ffn)?,
            });
        }
        Ok(Self { shape: shape.clone(), head: embed.clone(), embed, norm: ones()?, layers })
    }
}

/// An open GGUF file: metadata read, tensors still on disk.
pub(crate) struct Gguf {
    content: Content,
    file: BufReader<File>,
    path: PathBuf,
}

impl Gguf {
    /// Opens `path` and reads its metadata.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file =
            File::open(path).with_context(|| format!("cannot open the model file {}", path.display()))?;
        let mut file = BufReader::new(file);
        let content = contained(|| Content::read(&mut file).map_err(|error| first_line(&error)))
            .unwrap_or_else(|| Err("its header makes no sense".into()))
            .map_err(|error| anyhow::anyhow!(error))
            .with_context(|| format!("{} is not a readable GGUF file", path.display()))?;
        Ok(Self { content, file, path: path.to_owned() })
    }

    /// The model's sizes; an error where this is not a Llama model that the forward pass can run.
    pub(crate) fn shape(&self) -> Result<Shape> {
        let architecture = self.string("general.architecture")?;
        ensure!(
            architecture == "llama",
            "{} holds a model of architecture {architecture:?}; this demo runs \"llama\" only",
            self.path.display()
        );
        ensure!(
            !self.has("rope_freqs.weight"),
            "{} scales its rotary embedding by a table (rope_freqs), which this demo does not do",
            self.path.display()
        );
        let dim = self.size("llama.embedding_length", 16_384)?;
        let heads = self.size("llama.attention.head_count", 256)?;
        let shape = Shape {
            layers: self.size("llama.block_count", 256)?,
            dim,
            heads,
            kv_heads: self.size("llama.attention.head_count_kv", heads)?,
            head_dim: dim / heads,
            ffn: self.size("llama.feed_forward_length", 131_072)?,
            vocab: self.size("llama.vocab_size", 1 << 20)?,
            context: self.size("llama.context_length", 1 << 20)?.min(8_192),
            rope_theta: self.float("llama.rope.freq_base")?,
            norm_eps: self.float("llama.attention.layer_norm_rms_epsilon")?,
        };
        let fits = shape.head_dim * heads == dim
            && shape.head_dim.is_multiple_of(2)
            && heads.is_multiple_of(shape.kv_heads);
        ensure!(
            fits,
            "{} has {heads} query and {} KV heads over a width of {dim}, which does not divide evenly",
            self.path.display(),
            shape.kv_heads
        );
        Ok(shape)
    }

    /// A string of the metadata.
    pub(crate) fn string(&self, key: &str) -> Result<&str> {
        match self.value(key)? {
            Value::String(text) => Ok(text),
            _ => bail!("{}: {key} is not a string", self.path.display()),
        }
    }

    /// A list of strings of the metadata.
    pub(crate) fn strings(&self, key: &str) -> Result<Vec<&str>> {
        let Value::Array(items) = self.value(key)? else {
            bail!("{}: {key} is not a list", self.path.display());
        };
        items
            .iter()
            .map(|item| match item {
                Value::String(text) => Ok(text.as_str()),
                _ => bail!("{}: {key} holds more than strings", self.path.display()),
            })
            .collect()
    }

    /// A list of whole numbers of the metadata.
    pub(crate) fn numbers(&self, key: &str) -> Result<Vec<i64>> {
        let Value::Array(items) = self.value(key)? else {
            bail!("{}: {key} is not a list", self.path.display());
        };
        items
            .iter()
            .map(|item| match item {
                Value::I32(n) => Ok(i64::from(*n)),
                Value::U32(n) => Ok(i64::from(*n)),
                _ => bail!("{}: {key} holds more than numbers", self.path.display()),
            })
            .collect()
    }

    /// A token number of the metadata, if it is there.
    pub(crate) fn token(&self, key: &str) -> Option<u32> {
        self.content.metadata.get(key)?.to_u32().ok()
    }

    fn has(&self, tensor: &str) -> bool {
        self.content.tensor_infos.contains_key(tensor)
    }

    fn value(&self, key: &str) -> Result<&Value> {
        self.content.metadata.get(key).with_context(|| format!("{} lacks {key}", self.path.display()))
    }

    fn size(&self, key: &str, most: usize) -> Result<usize> {
        let value = self
            .value(key)?
            .to_u32()
            .ok()
            .map(|value| value as usize)
            .filter(|value| (1..=most).contains(value));
        value.with_context(|| {
            format!("{}: {key} must be a whole number from 1 to {most}", self.path.display())
        })
    }

    fn float(&self, key: &str) -> Result<f32> {
        let value = self.value(key)?.to_f32().ok().filter(|v| v.is_finite());
        value.with_context(|| format!("{}: {key} must be a finite number", self.path.display()))
    }

    fn tensor(&mut self, name: &str, dims: &[usize]) -> Result<Tensor> {
        let info = self
            .content
            .tensor_infos
            .get(name)
            .with_context(|| format!("{} lacks the tensor {name}", self.path.display()))?;
        ensure!(
            info.shape.dims() == dims,
            "{}: the tensor {name} has the shape {:?}, expected {dims:?}",
            self.path.display(),
            info.shape.dims()
        );
        let quantised = self
            .content
            .tensor(&mut self.file, name, &Device::Cpu)
            .map_err(|error| anyhow::anyhow!("{}", first_line(&error)))
            .with_context(|| format!("{}: cannot read the tensor {name}", self.path.display()))?;
        Ok(quantised.dequantize(&Device::Cpu)?)
    }
}

/// Runs `read`; none if it panics, as the library does on a file whose alignment is 0.
fn contained<T>(read: impl FnOnce() -> T) -> Option<T> {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(read));
    std::panic::set_hook(hook);
    result.ok()
}

/// The tensor library appends a back trace to its errors' text; the reader wants the first line.
fn first_line(error: &candle_core::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
