//! The forward pass of a Llama model whose K and V live in pages.
//!
//! Each step writes its keys and values to the pools and then reads all of them back from there,
//! so that attention sees what the pages hold and nothing else. The order of each reduction is
//! fixed by the shapes alone: the same tokens in the same chunks give the same bits in any process.

use anyhow::{Result, ensure};
use candle_core::{DType, Device, Tensor};
use candle_nn::ops::{rms_norm, softmax_last_dim};
use candle_nn::rotary_emb::rope_i;

use crate::block_table::BlockTable;
use crate::pools::{Kind, KvPools};
use crate::shape::Shape;
use crate::weights::{LayerWeights, Weights};

/// A model ready to run.
pub(crate) struct Model {
    weights: Weights,
    cos: Tensor,
    sin: Tensor,
}

impl Model {
    /// Readies `weights`: the rotary tables for the whole context.
    pub(crate) fn new(weights: Weights) -> Result<Self> {
        let shape = &weights.shape;
        let frequencies: Vec<f32> = (0..shape.head_dim / 2)
            .map(|pair| {
                let exponent = 2.0 * pair as f32 / shape.head_dim as f32;
                shape.rope_theta.powf(exponent).recip()
            })
            .collect();
        let frequencies = Tensor::new(frequencies, &Device::Cpu)?.unsqueeze(0)?;
        let positions =
            Tensor::arange(0, shape.context as u32, &Device::Cpu)?.to_dtype(DType::F32)?.unsqueeze(1)?;
        let angles = positions.matmul(&frequencies)?;
        Ok(Self { cos: angles.cos()?, sin: angles.sin()?, weights })
    }

    /// The model's sizes.
    pub(crate) fn shape(&self) -> &Shape {
        &self.weights.shape
    }

    /// Runs `tokens`, which stand at position `start` and after, and stores their keys and values.
    /// Returns the residual stream after the last layer, one row a token.
    pub(crate) fn forward(
        &self,
        pools: &mut KvPools,
        table: &BlockTable,
        start: usize,
        tokens: &[u32],
    ) -> Result<Tensor> {
        let end = start + tokens.len();
        let shape = self.shape();
        ensure!(
            end <= shape.context && end <= table.room(),
            "position {end} is beyond the sequence's room of {} tokens",
            table.room().min(shape.context)
        );
        let step = Step {
            model: self,
            table,
            start,
            len: tokens.len(),
            mask: (tokens.len() > 1).then(|| causal_mask(start, tokens.len())).transpose()?,
        };
        let ids = Tensor::new(tokens, &Device::Cpu)?;
        let mut x = self.weights.embed.index_select(&ids, 0)?;
        for (index, layer) in self.weights.layers.iter().enumerate() {
            let normed = rms_norm(&x, &layer.attn_norm, shape.norm_eps)?;
            x = (x + step.attention(pools, index, layer, &normed)?)?;
            let normed = rms_norm(&x, &layer.ffn_norm, shape.norm_eps)?;
            x = (x + feed_forward(layer, &normed)?)?;
        }
        Ok(x)
    }

    /// The logits of the last token of what [`Model::forward`] returned.
    pub(crate) fn logits(&self, x: &Tensor) -> Result<Vec<f32>> {
        let last = x.narrow(0, x.dim(0)? - 1, 1)?.contiguous()?;
        let last = rms_norm(&last, &self.weights.norm, self.shape().norm_eps)?;
        Ok(linear(&last, &self.weights.head)?.flatten_all()?.to_vec1()?)
    }
}

/// One pass over the layers: what all of them share.
struct Step<'a> {
    model: &'a Model,
    table: &'a BlockTable,
    start: usize,
    len: usize,
    mask: Option<Tensor>,
}

impl Step<'_> {
    fn attention(
        &self,
        pools: &mut KvPools,
        index: usize,
        layer: &LayerWeights,
        x: &Tensor,
    ) -> Result<Tensor> {
        let shape = self.model.shape();
        let (n, hd) = (self.len, shape.head_dim);
        let (kvh, group) = (shape.kv_heads, shape.heads / shape.kv_heads);

        let k = self.rotate(&linear(x, &layer.k)?, kvh)?;
        let k: Vec<f32> = k.transpose(0, 1)?.flatten_all()?.to_vec1()?;
        pools.store(index, Kind::K, self.table, self.start, &k);
        let v: Vec<f32> = linear(x, &layer.v)?.flatten_all()?.to_vec1()?;
        pools.store(index, Kind::V, self.table, self.start, &v);

        // Query heads of one KV head side by side: (kv_heads, group * n, head_dim).
        let q = self.rotate(&linear(x, &layer.q)?, shape.heads)?;
        let q = (q * (hd as f64).sqrt().recip())?.reshape((kvh, group * n, hd))?;

        let end = self.start + n;
        let pages = |kind| {
            let rows = pools.gather(index, kind, self.table, end);
            Tensor::from_vec(rows, (end, kvh, hd), &Device::Cpu)
        };
        let scores = q.matmul(&pages(Kind::K)?.permute((1, 2, 0))?)?;
        let scores = match &self.mask {
            Some(mask) => {
                let scores = scores.reshape((kvh * group, n, end))?;
                scores.broadcast_add(mask)?.reshape((kvh, group * n, end))?
            }
            None => scores,
        };
        let mixed = softmax_last_dim(&scores)?.matmul(&pages(Kind::V)?.transpose(0, 1)?)?;
        let mixed = mixed.reshape((shape.heads, n, hd))?.transpose(0, 1)?.reshape((n, shape.heads * hd))?;
        linear(&mixed, &layer.o)
    }

    /// (n, heads * head_dim) to (heads, n, head_dim), each head turned by its position.
    fn rotate(&self, x: &Tensor, heads: usize) -> Result<Tensor> {
        let x =
            x.reshape((1, self.len, heads, self.model.shape().head_dim))?.transpose(1, 2)?.contiguous()?;
        let cos = self.model.cos.narrow(0, self.start, self.len)?;
        let sin = self.model.sin.narrow(0, self.start, self.len)?;
        Ok(rope_i(&x, &cos, &sin)?.squeeze(0)?)
    }
}

fn feed_forward(layer: &LayerWeights, x: &Tensor) -> Result<Tensor> {
    let gate = linear(x, &layer.gate)?.silu()?;
    linear(&(gate * linear(x, &layer.up)?)?, &layer.down)
}

/// `x` (n, in) times the transpose of `weight` (out, in).
fn linear(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    Ok(x.matmul(&weight.t()?)?)
}

/// (1, n, start + n): 0 where a token may look, minus infinity at later tokens.
fn causal_mask(start: usize, n: usize) -> Result<Tensor> {
    let mask: Vec<f32> = (0..n)
        .flat_map(|row| {
            (0..start + n).map(move |column| match column > start + row {
                true => f32::NEG_INFINITY,
                false => 0.0,
            })
        })
        .collect();
    Ok(Tensor::from_vec(mask, (1, n, start + n), &Device::Cpu)?)
}

#[cfg(test)]
mod tests;
