//! Prefill and decode of the gated delta rule on the CPU, on slices: lengths are checked against
//! shapes, and what a call writes is borrowed mutably, so that no call of this crate is unsafe.
//! Everything else of the library, GPUs among it, is in `sluice_sys`.
//!
//! ```
//! use sluice::{Heads, Options, Prefill, Scratch};
//! let heads = Heads { key: 2, value: 4, key_dim: 64, value_dim: 64 };
//! let (q, v) = (vec![0.1f32; 100 * 2 * 64], vec![1.0f32; 100 * 4 * 64]);
//! let (gate, beta) = (vec![-0.05f32; 100 * 4], vec![0.5f32; 100 * 4]);
//! let (mut o, mut state) = (vec![0.0f32; v.len()], vec![0.0f32; heads.state_len()]);
//! Prefill { batch: 1, tokens: 100, heads, q: &q, k: &q, v: &v, gate: Some(&gate), beta: Some(&beta),
//!           initial: None, options: Options { l2norm: true, ..Options::default() } }
//!     .run(&mut o, Some(&mut state), &mut Scratch::default())?;
//! assert!((o[o.len() - 1] - 0.119187).abs() < 1e-6);
//! # Ok::<(), sluice::Error>(())
//! ```
// SPDX-License-Identifier: Apache-2.0

mod view;

use std::ffi::CStr;
use std::fmt;

pub use sluice_sys as sys;
pub use view::{Bf16, Element, Scratch, F16};
use view::{call, view, view_mut, Sizes};

/// A refusal: its code (`SLUICE_INVALID_ARGUMENT` and so on) and the library's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub code: i32,
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}
impl std::error::Error for Error {}

/// Heads of a layer; `value` is a multiple of `key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    pub key: usize,
    pub value: usize,
    pub key_dim: usize,
    pub value_dim: usize,
}

impl Heads {
    /// Numbers of one sequence's state [value heads, key_dim, value_dim].
    pub fn state_len(&self) -> usize {
        self.value * self.key_dim * self.value_dim
    }
}

/// What gates hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GateSpace {
    /// Logarithms of decays, at most 0.
    #[default]
    Log,
    /// Decays, 0 to 1.
    Linear,
}

/// Options of both operators.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    /// Factor of the outputs; `None` is key_dim^-0.5.
    pub scale: Option<f64>,
    /// Normalise q and k inside.
    pub l2norm: bool,
    pub gate_space: GateSpace,
    /// `beta` holds logits; write strengths otherwise.
    pub beta_is_logit: bool,
    /// Write strengths count twice (negative eigenvalues).
    pub doubled_beta: bool,
    /// Linear attention (simple GLA) in place of the delta rule; takes no `beta`.
    pub linear_attention: bool,
}

impl Options {
    fn c(&self) -> sys::sluice_delta_options {
        sys::sluice_delta_options {
            scale: self.scale.unwrap_or(0.0),
            l2norm_eps: 0.0,
            gate_lower_bound: 0.0,
            scale_mode: i32::from(self.scale.is_some()),
            gate_space: i32::from(self.gate_space == GateSpace::Linear),
            beta_space: i32::from(self.beta_is_logit),
            eigenvalues: i32::from(self.doubled_beta),
            qk_norm: i32::from(self.l2norm),
            head_map: 0,
            rule: i32::from(self.linear_attention),
            reserved: 0,
        }
    }
}

/// Whole sequences, by chunks. q and k are [batch, tokens, key heads, key_dim], v [batch, tokens,
/// value heads, value_dim], gate and beta [batch, tokens, value heads], states [batch, value heads,
/// key_dim, value_dim], all row-major.
#[derive(Clone, Copy, Debug)]
pub struct Prefill<'a, E: Element> {
    pub batch: usize,
    pub tokens: usize,
    pub heads: Heads,
    pub q: &'a [E],
    pub k: &'a [E],
    pub v: &'a [E],
    /// `None`: no decay.
    pub gate: Option<&'a [f32]>,
    /// `None`: 1.
    pub beta: Option<&'a [f32]>,
    /// `None`: zeros.
    pub initial: Option<&'a [f32]>,
    pub options: Options,
}

impl<E: Element> Prefill<'_, E> {
    /// Writes outputs, shaped as v, and the states after the last token where they are wanted.
    pub fn run(
        &self,
        o: &mut [E],
        state: Option<&mut [f32]>,
        scratch: &mut Scratch,
    ) -> Result<(), Error> {
        let s = Sizes::new(self.batch, self.tokens, &self.heads);
        let mut args = view::zeroed::<sys::sluice_chunk_forward_args>();
        args.struct_size = std::mem::size_of_val(&args);
        args.q = view("q", self.q, &s.keys)?;
        args.k = view("k", self.k, &s.keys)?;
        args.v = view("v", self.v, &s.values)?;
        args.o = view_mut("o", o, &s.values)?;
        args.gate = self.gate.map_or(Ok(args.gate), |x| view("gate", x, &s.gates))?;
        args.beta = self.beta.map_or(Ok(args.beta), |x| view("beta", x, &s.gates))?;
        let absent = args.state.initial;
        args.state.initial = self.initial.map_or(Ok(absent), |x| view("initial", x, &s.states))?;
        args.state.final_ = state.map_or(Ok(absent), |x| view_mut("state", x, &s.states))?;
        args.options = self.options.c();
        call(sys::SLUICE_OP_CHUNK_FORWARD, &args, scratch, sys::sluice_chunk_forward)
    }
}

/// The next 1 to 16 tokens of each sequence, shaped as in [`Prefill`].
#[derive(Clone, Copy, Debug)]
pub struct Decode<'a, E: Element> {
    pub batch: usize,
    pub tokens: usize,
    pub heads: Heads,
    pub q: &'a [E],
    pub k: &'a [E],
    pub v: &'a [E],
    pub gate: Option<&'a [f32]>,
    pub beta: Option<&'a [f32]>,
    /// The slot of each sequence in the pool, `None`: 0, 1, 2, ..; negative: a padded row, which
    /// gives zeros and touches no state. No two rows may name one slot.
    pub slots: Option<&'a [i32]>,
    pub options: Options,
}

impl<E: Element> Decode<'_, E> {
    /// Writes outputs and updates the states in `pool`, any number of slots of
    /// [`Heads::state_len`] numbers.
    pub fn run(&self, o: &mut [E], pool: &mut [f32], scratch: &mut Scratch) -> Result<(), Error> {
        let s = Sizes::new(self.batch, self.tokens, &self.heads);
        let slot_len = self.heads.state_len();
        let slots = if slot_len == 0 { 0 } else { pool.len() / slot_len };
        self.check_slots(slots)?;
        let mut args = view::zeroed::<sys::sluice_recurrent_step_args>();
        args.struct_size = std::mem::size_of_val(&args);
        args.q = view("q", self.q, &s.keys)?;
        args.k = view("k", self.k, &s.keys)?;
        args.v = view("v", self.v, &s.values)?;
        args.o = view_mut("o", o, &s.values)?;
        args.gate = self.gate.map_or(Ok(args.gate), |x| view("gate", x, &s.gates))?;
        args.beta = self.beta.map_or(Ok(args.beta), |x| view("beta", x, &s.gates))?;
        args.state.initial =
            view_mut("pool", pool, &[slots, s.states[1], s.states[2], s.states[3]])?;
        if let Some(slots) = self.slots {
            args.state.read_slots = view("slots", slots, &[self.batch])?;
        }
        args.options = self.options.c();
        call(sys::SLUICE_OP_RECURRENT_STEP, &args, scratch, sys::sluice_recurrent_step)
    }

    /// The library's threads would race for a slot that two rows name: refused here.
    fn check_slots(&self, count: usize) -> Result<(), Error> {
        let mut named = vec![false; count];
        for &slot in self.slots.unwrap_or(&[]).iter().filter(|&&slot| slot >= 0) {
            let taken = named.get_mut(slot as usize).map(|seen| std::mem::replace(seen, true));
            if taken == Some(true) {
                return Err(view::refused(format!(
                    "slots = {slot} twice, expected a slot that no other row names"
                )));
            }
        }
        Ok(())
    }
}

/// The kernel that this thread's last successful call ran, e.g. "cpu.chunk_forward.avx512".
pub fn last_kernel() -> String {
    // SAFETY: a string of static storage.
    unsafe { CStr::from_ptr(sys::sluice_last_kernel()) }.to_string_lossy().into_owned()
}

/// The version of the library that is linked.
pub fn version() -> String {
    // SAFETY: a string of static storage.
    unsafe { CStr::from_ptr(sys::sluice_version()) }.to_string_lossy().into_owned()
}
