//! Measures prefill and decode against the recurrence in f64, token by token, and that wrong lengths
//! and slots are refused with nothing written.
// SPDX-License-Identifier: Apache-2.0
use sluice::{Bf16, Decode, Error, Heads, Options, Prefill, Scratch};

const HEADS: Heads = Heads { key: 2, value: 4, key_dim: 24, value_dim: 40 };

/// Numbers in (-1, 1) by a fixed generator.
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

struct Inputs {
    tokens: usize,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    gate: Vec<f32>,
    beta: Vec<f32>,
}

impl Inputs {
    fn new(tokens: usize) -> Self {
        let h = HEADS;
        let positive = |seed| numbers(tokens * h.value, seed).iter().map(|x| x.abs()).collect();
        let gate: Vec<f32> = positive(4);
        Inputs {
            tokens,
            q: numbers(tokens * h.key * h.key_dim, 1),
            k: numbers(tokens * h.key * h.key_dim, 2),
            v: numbers(tokens * h.value * h.value_dim, 3),
            gate: gate.iter().map(|x| -x).collect(),
            beta: positive(5),
        }
    }

    /// Outputs and final states of one sequence.
    fn recurrence(&self) -> (Vec<f64>, Vec<f64>) {
        let Heads { key, value, key_dim: kd, value_dim: vd } = HEADS;
        let mut state = vec![0.0f64; HEADS.state_len()];
        let mut o = vec![0.0f64; self.v.len()];
        for t in 0..self.tokens {
            for head in 0..value {
                let row = (t * key + head / (value / key)) * kd;
                let unit = |x: &[f32]| -> Vec<f64> {
                    let norm: f64 = x.iter().map(|&a| f64::from(a).powi(2)).sum::<f64>() + 1e-6;
                    x.iter().map(|&a| f64::from(a) / norm.sqrt()).collect()
                };
                let (q, k) = (unit(&self.q[row..row + kd]), unit(&self.k[row..row + kd]));
                let decay = f64::from(self.gate[t * value + head]).exp();
                let beta = f64::from(self.beta[t * value + head]);
                let s = &mut state[head * kd * vd..(head + 1) * kd * vd];
                for j in 0..vd {
                    let mut memory = 0.0;
                    for i in 0..kd {
                        s[i * vd + j] *= decay;
                        memory += s[i * vd + j] * k[i];
                    }
                    let at = (t * value + head) * vd + j;
                    let write = beta * (f64::from(self.v[at]) - memory);
                    for i in 0..kd {
                        s[i * vd + j] += k[i] * write;
                        o[at] += s[i * vd + j] * q[i] / (kd as f64).sqrt();
                    }
                }
            }
        }
        (o, state)
    }

    fn prefill(&self) -> Prefill<'_, f32> {
        Prefill {
            batch: 1,
            tokens: self.tokens,
            heads: HEADS,
            q: &self.q,
            k: &self.k,
            v: &self.v,
            gate: Some(&self.gate),
            beta: Some(&self.beta),
            initial: None,
            options: Options { l2norm: true, ..Options::default() },
        }
    }

    /// Token t of one sequence.
    fn decode(&self, t: usize) -> Decode<'_, f32> {
        let part = |width: usize| t * width..(t + 1) * width;
        let (keys, values) = (HEADS.key * HEADS.key_dim, HEADS.value * HEADS.value_dim);
        Decode {
            batch: 1,
            tokens: 1,
            heads: HEADS,
            q: &self.q[part(keys)],
            k: &self.k[part(keys)],
            v: &self.v[part(values)],
            gate: Some(&self.gate[part(HEADS.value)]),
            beta: Some(&self.beta[part(HEADS.value)]),
            slots: None,
            options: Options { l2norm: true, ..Options::default() },
        }
    }
}

fn error(found: &[f32], truth: &[f64]) -> f64 {
    let distance: f64 = found.iter().zip(truth).map(|(&a, b)| (f64::from(a) - b).powi(2)).sum();
    (distance / truth.iter().map(|b| b * b).sum::<f64>()).sqrt()
}

#[test]
fn prefill_is_the_recurrence() -> Result<(), Error> {
    let inputs = Inputs::new(150);
    let (truth, last) = inputs.recurrence();
    let (mut o, mut state) = (vec![f32::NAN; truth.len()], vec![f32::NAN; last.len()]);
    inputs.prefill().run(&mut o, Some(&mut state), &mut Scratch::default())?;
    assert!(error(&o, &truth) < 1e-6 && error(&state, &last) < 1e-6);
    assert!(sluice::last_kernel().starts_with("cpu.chunk_forward"));
    Ok(())
}

#[test]
fn decode_carries_states_on() -> Result<(), Error> {
    let inputs = Inputs::new(9);
    let (truth, last) = inputs.recurrence();
    let (width, mut scratch) = (HEADS.value * HEADS.value_dim, Scratch::default());
    let mut pool = vec![0.0f32; 3 * HEADS.state_len()];
    let mut o = vec![0.0f32; width];
    for t in 0..inputs.tokens {
        let step = Decode { slots: Some(&[2]), ..inputs.decode(t) };
        step.run(&mut o, &mut pool, &mut scratch)?;
        assert!(error(&o, &truth[t * width..(t + 1) * width]) < 1e-6);
    }
    assert!(error(&pool[2 * HEADS.state_len()..], &last) < 1e-6);
    assert!(pool[..2 * HEADS.state_len()].iter().all(|&x| x == 0.0));
    Ok(())
}

#[test]
fn padded_rows_touch_nothing() -> Result<(), Error> {
    let inputs = Inputs::new(1);
    let (mut o, mut pool) = (vec![1.0f32; inputs.v.len()], vec![0.5f32; HEADS.state_len()]);
    let step = Decode { slots: Some(&[-1]), ..inputs.decode(0) };
    step.run(&mut o, &mut pool, &mut Scratch::default())?;
    assert!(o.iter().all(|&x| x == 0.0) && pool.iter().all(|&x| x == 0.5));
    Ok(())
}

#[test]
fn sixteen_bits() -> Result<(), Error> {
    let one = vec![Bf16(0x3f80); 5 * 2 * 24];
    let v = vec![Bf16(0x3f80); 5 * 4 * 40];
    let mut o = vec![Bf16(0); v.len()];
    let call = Prefill { batch: 1, tokens: 5, heads: HEADS, q: &one, k: &one, v: &v, gate: None,
                         beta: None, initial: None,
                         options: Options { l2norm: true, scale: Some(1.0), ..Options::default() } };
    call.run(&mut o, None, &mut Scratch::default())?;
    assert!(o.iter().all(|x| (f32::from_bits(u32::from(x.0) << 16) - 1.0).abs() < 0.01));
    Ok(())
}

#[test]
fn refusals_name_the_argument_and_write_nothing() {
    let inputs = Inputs::new(4);
    let (mut o, mut scratch) = (vec![7.0f32; inputs.v.len()], Scratch::default());
    let short = Prefill { q: &inputs.q[1..], ..inputs.prefill() };
    let refusal = short.run(&mut o, None, &mut scratch).unwrap_err();
    assert!(refusal.message.starts_with("q.len() = 191, expected the product of"), "{refusal}");
    let odd = Heads { value: 3, ..HEADS };
    let (values, gates) = (4 * 3 * 40, 4 * 3);
    let refusal = Prefill { heads: odd, v: &inputs.v[..values], gate: Some(&inputs.gate[..gates]),
                            beta: Some(&inputs.beta[..gates]), ..inputs.prefill() }
        .run(&mut o[..values], None, &mut scratch)
        .unwrap_err();
    assert_eq!(refusal.message, "chunk_forward: v.shape[2] = 3, expected a multiple of H = 2 \
                                 (grouped value heads)");
    assert!(o.iter().all(|&x| x == 7.0));
    let mut pool = vec![0.0f32; 2 * HEADS.state_len()];
    for (slots, message) in [([5], "expected < 2 (slots of the pool)"), ([2], "expected < 2")] {
        let step = Decode { slots: Some(&slots), ..inputs.decode(0) };
        let refusal = step.run(&mut o[..160], &mut pool, &mut scratch).unwrap_err();
        assert!(refusal.message.contains(message), "{refusal}");
    }
}

#[test]
fn two_rows_may_not_name_one_slot() {
    let (q, v) = (numbers(2 * 2 * 24, 1), numbers(2 * 4 * 40, 2));
    let (mut o, mut pool) = (vec![0.0f32; v.len()], vec![0.0f32; 2 * HEADS.state_len()]);
    let step = Decode { batch: 2, tokens: 1, heads: HEADS, q: &q, k: &q, v: &v, gate: None,
                        beta: None, slots: Some(&[1, 1]), options: Options::default() };
    let refusal = step.run(&mut o, &mut pool, &mut Scratch::default()).unwrap_err();
    assert_eq!(refusal.message, "slots = 1 twice, expected a slot that no other row names");
}
