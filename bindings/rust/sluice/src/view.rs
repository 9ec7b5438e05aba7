//! Makes views of slices, keeps scratch memory, and calls an operator.
// SPDX-License-Identifier: Apache-2.0

use crate::{sys, Error, Heads};
use std::ffi::{c_void, CStr};

/// A bfloat16, by its bits.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bf16(pub u16);

/// A float16, by its bits.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct F16(pub u16);

mod private {
    pub trait Sealed {
        const DTYPE: super::sys::sluice_dtype;
    }
}

/// What tensors hold: `f32`, [`Bf16`], [`F16`], and `i32` for slots.
pub trait Element: private::Sealed + Copy {}

macro_rules! element {
    ($kind:ty, $code:expr, $bits:expr) => {
        impl private::Sealed for $kind {
            const DTYPE: sys::sluice_dtype = sys::sluice_dtype { code: $code, bits: $bits };
        }
        impl Element for $kind {}
    };
}
element!(f32, 2, 32);
element!(Bf16, 4, 16);
element!(F16, 2, 16);
element!(i32, 0, 32);

/// Scratch memory, which grows to the largest call's need and is reused.
#[derive(Debug, Default)]
pub struct Scratch {
    blocks: Vec<Block>,
}

/// The alignment that workspaces need.
#[repr(align(256))]
#[derive(Clone, Copy, Debug)]
struct Block(#[allow(dead_code)] [u8; 256]);

impl Scratch {
    fn reserve(&mut self, bytes: usize) -> sys::sluice_workspace {
        let blocks = (bytes + 255) / 256;
        if self.blocks.len() < blocks {
            self.blocks.resize(blocks, Block([0; 256]));
        }
        sys::sluice_workspace {
            data: self.blocks.as_mut_ptr().cast(),
            size: 256 * self.blocks.len(),
        }
    }
}

/// Shapes of a call's tensors.
pub struct Sizes {
    pub keys: [usize; 4],
    pub values: [usize; 4],
    pub gates: [usize; 3],
    pub states: [usize; 4],
}

impl Sizes {
    pub fn new(batch: usize, tokens: usize, heads: &Heads) -> Self {
        Sizes {
            keys: [batch, tokens, heads.key, heads.key_dim],
            values: [batch, tokens, heads.value, heads.value_dim],
            gates: [batch, tokens, heads.value],
            states: [batch, heads.value, heads.key_dim, heads.value_dim],
        }
    }
}

pub fn refused(message: String) -> Error {
    Error { code: sys::SLUICE_INVALID_ARGUMENT, message }
}

/// An argument struct whose every view is absent and every option the default.
pub fn zeroed<A>() -> A {
    // SAFETY: the structs of the interface are plain data, and zeros are their defaults.
    unsafe { std::mem::zeroed() }
}

fn fill(data: *mut c_void, len: usize, dtype: sys::sluice_dtype, name: &str, shape: &[usize])
    -> Result<sys::sluice_tensor, Error>
{
    let wanted = shape.iter().try_fold(1usize, |all, &size| all.checked_mul(size));
    if wanted != Some(len) {
        return Err(refused(format!("{name}.len() = {len}, expected the product of {shape:?}")));
    }
    let mut view = zeroed::<sys::sluice_tensor>();
    view.data = data;
    view.device = sys::sluice_device { type_: sys::SLUICE_DEVICE_CPU, index: 0 };
    view.dtype = dtype;
    view.rank = shape.len() as u16;
    let mut step = 1i64;
    for axis in (0..shape.len()).rev() {
        view.shape[axis] = shape[axis] as i64;
        view.stride[axis] = step;
        step = step.saturating_mul(shape[axis] as i64);
    }
    Ok(view)
}

/// A dense view that is read.
pub fn view<E: Element>(name: &str, of: &[E], shape: &[usize]) -> Result<sys::sluice_tensor, Error> {
    fill(of.as_ptr() as *mut c_void, of.len(), E::DTYPE, name, shape)
}

/// A dense view that is written.
pub fn view_mut<E: Element>(name: &str, of: &mut [E], shape: &[usize])
    -> Result<sys::sluice_tensor, Error>
{
    fill(of.as_mut_ptr().cast(), of.len(), E::DTYPE, name, shape)
}

fn checked(code: i32) -> Result<(), Error> {
    if code == sys::SLUICE_OK {
        return Ok(());
    }
    // SAFETY: the message of this thread's last failed call, until its next one.
    let message = unsafe { CStr::from_ptr(sys::sluice_last_error()) };
    Err(Error { code, message: message.to_string_lossy().into_owned() })
}

/// Asks for the workspace and runs the operator on the CPU.
pub fn call<A>(
    op: i32,
    args: &A,
    scratch: &mut Scratch,
    run: unsafe extern "C" fn(*const A, sys::sluice_workspace, *mut c_void) -> i32,
) -> Result<(), Error> {
    let mut bytes = 0usize;
    // SAFETY: `args` is the struct of `op`; its views have the memory of slices that outlive the
    // call, those that are written borrowed mutably by the caller.
    unsafe {
        checked(sys::sluice_workspace_size(op, (args as *const A).cast(), &mut bytes))?;
        checked(run(args, scratch.reserve(bytes), std::ptr::null_mut()))
    }
}
