//! What the benches share: timing side by side, and peers that tower does not have.

mod harness;
mod shared;

pub use harness::{Bench, is_measuring, quartiles};
pub use shared::*;
