//! OpenAI's files and batches, over a store in memory with real workers.

mod cancel;
mod expiry;
mod files;
mod killed;
mod lines;
mod openai;
#[path = "../support/python.rs"]
mod python;
mod restart;
mod sockets;
mod support;
