//! What the body of an OpenAI-compatible request asks: the model, tools, images, tokens and stream.
//!
//! [`ReadBody`] reads a body up to a limit;
//! [`Requirements::from_json`](crate::endpoints::Requirements::from_json) says what it asks.

mod json;
mod read_body;
mod requirements;
mod usage;

pub use read_body::ReadBody;
pub(crate) use usage::{AnswerForm, UsageReader};
