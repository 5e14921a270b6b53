//! The prompt in a body, with its length, its beginning and its use of images. It may be in five fields and has a dozen
//! shapes.

use serde_json::value::RawValue;

use super::json::{chars, each_field, each_item, quoted, string};
use super::prefix::Prefix;

/// The facts about a prompt.
#[derive(Debug, Default)]
pub(super) struct Prompt {
    pub(super) vision: bool,
    pub(super) chars: u64,
    /// The number of texts in a list of them. Each of these texts gets an answer of its own.
    pub(super) texts: u32,
    pub(super) prefix: Prefix,
}

/// The meaning of an object within a prompt.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Message,
    /// A part of a message's content.
    Part,
    /// An element of an input, which may be either.
    Input,
}

impl Prompt {
    /// Reads the `messages` of a chat.
    pub(super) fn messages(&mut self, list: &RawValue) {
        each_item(list, |message| self.object(message, Role::Message));
    }

    /// Reads a text, or a list of texts, of tokens, of lists of tokens, of messages or of parts.
    pub(super) fn input(&mut self, input: &RawValue) {
        self.text(input);
        each_item(input, |item| {
            self.object(item, Role::Input);
            self.texts += u32::from(item.get().starts_with(['"', '[']));
            self.text(item);
            self.token(item);
            each_item(item, |token| self.token(token));
        });
    }

    /// Returns this prompt followed by `next`.
    pub(super) fn then(self, next: Self) -> Self {
        Self {
            vision: self.vision | next.vision,
            chars: self.chars + next.chars,
            texts: next.texts, // instructions do not get an answer of their own
            prefix: self.prefix.then(next.prefix),
        }
    }

    /// Adds a value if it is an object.
    fn object(&mut self, object: &RawValue, role: Role) {
        let (mut kind, mut text, mut is_user) = (None, None, false);
        each_field(object, |key, value| match &*key {
            "content" if role != Role::Part => self.content(value),
            "role" if role != Role::Part => {
                is_user = string(value).is_some_and(|role| role == "user");
            }
            "type" => kind = string(value),
            "text" => text = Some(value),
            _ => {}
        });
        if is_user {
            self.prefix.close();
        }
        match kind.as_deref() {
            _ if role == Role::Message => {}
            Some("image_url" | "input_image") => self.vision = true,
            Some("text" | "input_text" | "output_text") => {
                text.into_iter().for_each(|text| self.text(text));
            }
            _ => {}
        }
    }

    fn content(&mut self, content: &RawValue) {
        self.text(content);
        each_item(content, |part| {
            self.object(part, Role::Part);
            self.text(part);
        });
    }

    /// Adds a value if it is a string.
    fn text(&mut self, value: &RawValue) {
        if let Some(written) = quoted(value) {
            self.chars += chars(written);
            self.prefix.add(written);
        }
    }

    /// Adds a value if it is a number, which is a token and counts as four characters.
    fn token(&mut self, value: &RawValue) {
        if matches!(value.get().as_bytes(), [b'-' | b'0'..=b'9', ..]) {
            self.chars += 4;
            self.prefix.add(value.get());
        }
    }
}
