//! `SwapLayer` with models that are started by a fake, in paused time.

mod asleep;
mod client_waits;
mod fake;
mod fallback;
mod hostile;
mod long_loads;
mod operator;
mod order;
mod pinned;
mod random;
mod reload;
mod rough;
mod serving;
mod storm;
