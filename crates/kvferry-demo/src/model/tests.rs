use super::*;
use crate::block_table::FreePages;
use crate::memory::PoolMemory;
use crate::sequence::Sequence;
use crate::weights::Source;

const PROMPT: usize = 53;

fn tiny() -> Model {
    let source = Source::Random { shape: Shape::tiny(), seed: 11 };
    Model::new(Weights::load(&source).unwrap()).unwrap()
}

fn prompt() -> Vec<u32> {
    (0..PROMPT as u32).map(|n| (n * 37 + 5) % 320).collect()
}

/// Tokens of an answer and the hash over all logits, from pools of that page size.
fn answer(model: &Model, page_size: usize, chunk: usize, free: &mut FreePages) -> (Vec<u32>, Sequence) {
    let pages = (PROMPT + 10).div_ceil(page_size) + 3;
    let mut pools = KvPools::new(model.shape(), page_size, pages, PoolMemory::private).unwrap();
    let mut sequence = Sequence::new(free.take(PROMPT + 10, page_size).unwrap());
    let prompt = prompt();
    let mut chunks: Vec<&[u32]> = prompt.chunks(chunk).collect();
    let last = chunks.pop().unwrap();
    for chunk in chunks {
        sequence.absorb(model, &mut pools, chunk).unwrap();
    }
    let mut tokens = vec![sequence.advance(model, &mut pools, last).unwrap()];
    for _ in 0..9 {
        let token = sequence.advance(model, &mut pools, &[*tokens.last().unwrap()]).unwrap();
        tokens.push(token);
    }
    assert!(sequence.finite());
    (tokens, sequence)
}

#[test]
fn shuffled_pages_give_the_bits_of_one_contiguous_page() {
    let model = tiny();
    let (contiguous, whole) = answer(&model, PROMPT + 10, 16, &mut FreePages::in_order(1));
    for page_size in [1, 4, 7, 16] {
        let pages = (PROMPT + 10).div_ceil(page_size) + 3;
        let (tokens, paged) = answer(&model, page_size, 16, &mut FreePages::shuffled(pages, 9));
        assert_eq!(tokens, contiguous, "page size {page_size}");
        assert_eq!(paged.hash(), whole.hash(), "page size {page_size}");
    }
}

#[test]
fn the_same_run_twice_gives_the_same_bits() {
    let (first, one) = answer(&tiny(), 4, 16, &mut FreePages::in_order(20));
    let (second, two) = answer(&tiny(), 4, 16, &mut FreePages::shuffled(19, 4));
    assert_eq!((first, one.hash()), (second, two.hash()));
}

/// Nine tokens of a random model could agree by chance of a loop; the logits cannot.
#[test]
fn other_tokens_give_other_logits() {
    let model = tiny();
    let mut pools = KvPools::new(model.shape(), 8, 8, PoolMemory::private).unwrap();
    let mut free = FreePages::in_order(8);
    let mut logits = |tokens: &[u32]| {
        let mut sequence = Sequence::new(free.take(16, 8).unwrap());
        sequence.advance(&model, &mut pools, tokens).unwrap();
        sequence.hash()
    };
    assert_ne!(logits(&[1, 2, 3]), logits(&[2, 1, 3]));
}

/// What a token may see: itself and what came before, by the definition of attention rather than
/// by the code under test: later tokens of its chunk must not change it.
#[test]
fn a_token_sees_nothing_that_comes_later() {
    let model = tiny();
    let mut pools = KvPools::new(model.shape(), 4, 30, PoolMemory::private).unwrap();
    let mut free = FreePages::in_order(30);
    let mut row = |tokens: &[u32]| -> Vec<f32> {
        let table = free.take(20, 4).unwrap();
        let x = model.forward(&mut pools, &table, 0, tokens).unwrap();
        x.get(4).unwrap().to_vec1().unwrap()
    };
    let short = row(&[9, 8, 7, 6, 5, 4]);
    let changed = row(&[9, 8, 7, 6, 5, 200]);
    assert_eq!(short, changed);
    assert_ne!(short, row(&[9, 8, 7, 200, 5, 4]));
}

#[test]
fn a_slot_that_nobody_wrote_makes_the_logits_not_finite() {
    let model = tiny();
    let mut pools = KvPools::new(model.shape(), 4, 4, PoolMemory::private).unwrap();
    let table = FreePages::in_order(4).take(16, 4).unwrap();
    let mut sequence = Sequence::resume(table, 3, crate::sequence::LogitsHash::EMPTY, true);
    sequence.advance(&model, &mut pools, &[5]).unwrap();
    assert!(!sequence.finite());
}

#[test]
fn a_sequence_cannot_outgrow_its_pages() {
    let model = tiny();
    let mut pools = KvPools::new(model.shape(), 4, 4, PoolMemory::private).unwrap();
    let table = FreePages::in_order(4).take(8, 4).unwrap();
    assert!(model.forward(&mut pools, &table, 6, &[1, 2, 3]).is_err());
}

/// The forward pass against one written down from the definition, without pages, chunks or a
/// tensor library.
#[test]
fn the_logits_are_those_of_the_definition() {
    let model = tiny();
    let tokens = [3u32, 141, 59, 265];
    let mut pools = KvPools::new(model.shape(), 3, 2, PoolMemory::private).unwrap();
    let table = FreePages::shuffled(2, 1).take(6, 3).unwrap();
    let mut x = None;
    for (start, chunk) in [(0, &tokens[..3]), (3, &tokens[3..])] {
        x = Some(model.forward(&mut pools, &table, start, chunk).unwrap());
    }
    let logits = model.logits(&x.unwrap()).unwrap();
    let expected = reference::logits(&model.weights, &tokens);
    for (index, (got, want)) in logits.iter().zip(&expected).enumerate() {
        assert!((f64::from(*got) - want).abs() < 1e-4, "logit {index}: {got}, by definition {want}");
    }
}

mod reference {
    use super::*;

    type Matrix = Vec<Vec<f64>>;

    fn matrix(tensor: &Tensor) -> Matrix {
        let rows: Vec<Vec<f32>> = tensor.to_vec2().unwrap();
        rows.into_iter().map(|row| row.into_iter().map(f64::from).collect()).collect()
    }

    fn times(weight: &Tensor, x: &[f64]) -> Vec<f64> {
        matrix(weight).iter().map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum()).collect()
    }

    fn norm(x: &[f64]) -> Vec<f64> {
        let mean = x.iter().map(|a| a * a).sum::<f64>() / x.len() as f64;
        x.iter().map(|a| a / (mean + 1e-5).sqrt()).collect()
    }

    fn turn(x: &mut [f64], head_dim: usize, position: usize) {
        for head in x.chunks_mut(head_dim) {
            for (pair, xy) in head.chunks_mut(2).enumerate() {
                let angle = position as f64 / 100_000f64.powf(2.0 * pair as f64 / head_dim as f64);
                let (sin, cos) = angle.sin_cos();
                (xy[0], xy[1]) = (xy[0] * cos - xy[1] * sin, xy[0] * sin + xy[1] * cos);
            }
        }
    }

    pub(super) fn logits(weights: &Weights, tokens: &[u32]) -> Vec<f64> {
        let (hd, group) = (weights.shape.head_dim, weights.shape.heads / weights.shape.kv_heads);
        let embed = matrix(&weights.embed);
        let mut xs: Matrix = tokens.iter().map(|token| embed[*token as usize].clone()).collect();
        for layer in &weights.layers {
            let normed: Matrix = xs.iter().map(|x| norm(x)).collect();
            let project = |weight: &Tensor, turned: bool| -> Matrix {
                let rows = normed.iter().enumerate().map(|(position, x)| {
                    let mut row = times(weight, x);
                    if turned {
                        turn(&mut row, hd, position);
                    }
                    row
                });
                rows.collect()
            };
            let (q, k, v) = (project(&layer.q, true), project(&layer.k, true), project(&layer.v, false));
            for (position, x) in xs.iter_mut().enumerate() {
                let mut mixed = vec![0.0; weights.shape.heads * hd];
                for head in 0..weights.shape.heads {
                    let (at, from) = (head * hd, head / group * hd);
                    let weights: Vec<f64> = (0..=position)
                        .map(|other| {
                            let dot: f64 = (0..hd).map(|n| q[position][at + n] * k[other][from + n]).sum();
                            (dot / (hd as f64).sqrt()).exp()
                        })
                        .collect();
                    let sum: f64 = weights.iter().sum();
                    for (other, weight) in weights.iter().enumerate() {
                        for n in 0..hd {
                            mixed[at + n] += weight / sum * v[other][from + n];
                        }
                    }
                }
                for (a, b) in x.iter_mut().zip(times(&layer.o, &mixed)) {
                    *a += b;
                }
                let normed = norm(x);
                let gate = times(&layer.gate, &normed);
                let inner: Vec<f64> = gate
                    .iter()
                    .zip(times(&layer.up, &normed))
                    .map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up)
                    .collect();
                for (a, b) in x.iter_mut().zip(times(&layer.down, &inner)) {
                    *a += b;
                }
            }
        }
        times(&weights.head, &norm(&xs[tokens.len() - 1]))
    }
}
