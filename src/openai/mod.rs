//! The demand in the body of an OpenAI-compatible request: its model, tools, images, tokens and stream.
//!
//! [`ReadBody`] reads a body up to a limit, [`BodyMemory`] limits the memory of all bodies together, and [`Requirements::from_json`](crate::endpoints::Requirements::from_json)
//! returns the demand in it.

mod content_type;
mod edit;
mod error_in_answer;
#[cfg(feature = "client")]
mod first_event;
mod form;
mod json;
mod prefix;
mod prompt;
mod read_body;
mod requirements;
#[cfg(test)]
mod tests;
mod text_length;
mod usage;

pub use crate::http::{BodyMemory, MemoryShare};
pub(crate) use content_type::BodyKind;
pub(crate) use edit::Edits;
pub(crate) use error_in_answer::{ErrorForm, ErrorReader};
#[cfg(feature = "client")]
pub(crate) use first_event::{FirstEvent, refusal_in};
pub(crate) use form::{FormStart, ReadForm, RestOfForm};
pub use read_body::ReadBody;
pub(crate) use usage::{AnswerForm, UsageReader};
