//! The prompt in a body, with its length, its beginning and its use of images. It may be in five fields and has a dozen
//! shapes.

use super::json::{Read, Reader, quoted};
use super::prefix::Prefix;
use super::text_length::{TOKEN, text_length};

/// The facts about a prompt.
#[derive(Debug, Default)]
pub(super) struct Prompt {
    pub(super) vision: bool,
    /// The length of the text, in quarters of a token.
    pub(super) length: u64,
    /// The number of texts in a list of them. Each of these texts gets an answer of its own.
    pub(super) texts: u32,
    /// The length of the longest of these texts.
    longest: u64,
    /// The length of all others of these texts, each of which has a context of its own.
    others: u64,
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
    /// Creates an empty prompt. Without `hashes_prefix`, its beginning stays empty.
    pub(super) fn new(hashes_prefix: bool) -> Self {
        Self {
            prefix: match hashes_prefix {
                true => Prefix::default(),
                false => Prefix::ignored(),
            },
            ..Self::default()
        }
    }

    /// Reads the `messages` of a chat.
    pub(super) fn messages(&mut self, json: &mut Reader<'_>) -> Read<()> {
        json.items(|json| self.object(json, Role::Message))
    }

    /// Reads a text, or a list of texts, of tokens, of lists of tokens, of messages or of parts.
    pub(super) fn input(&mut self, json: &mut Reader<'_>) -> Read<()> {
        match json.peek()? {
            b'"' => self.text(json),
            _ => json.items(|json| self.input_item(json)),
        }
    }

    fn input_item(&mut self, json: &mut Reader<'_>) -> Read<()> {
        let before = self.length;
        match json.peek()? {
            b'"' => self.text(json)?,
            b'[' => json.items(|json| self.token(json))?,
            b'{' => return self.object(json, Role::Input),
            _ => return self.token(json),
        }
        self.end_text(self.length - before);
        Ok(())
    }

    /// Counts a text of a list, which has this length.
    fn end_text(&mut self, length: u64) {
        self.texts += 1;
        self.others += self.longest.min(length);
        self.longest = self.longest.max(length);
    }

    /// Returns the length of the text that shares one context, if that is the longest of several texts and all that is not
    /// one of them.
    pub(super) fn length_in_context(&self) -> Option<u64> {
        (self.texts > 1).then(|| self.length - self.others)
    }

    /// Returns this prompt followed by `next`.
    pub(super) fn then(self, next: Self) -> Self {
        Self {
            vision: self.vision | next.vision,
            length: self.length + next.length,
            // Instructions get no answer and no context of their own.
            texts: next.texts,
            longest: next.longest,
            others: next.others,
            prefix: self.prefix.then(next.prefix),
        }
    }

    /// Reads a value, which counts if it is an object.
    fn object(&mut self, json: &mut Reader<'_>, role: Role) -> Read<()> {
        let (mut kind, mut text, mut is_user) = (None, None, false);
        json.fields(|json, key| {
            match key {
                "content" if role != Role::Part => self.content(json)?,
                "role" if role != Role::Part => {
                    is_user = json.text()?.is_some_and(|role| role == "user");
                }
                "type" => kind = json.text()?,
                "text" => text = Some(json.value()?),
                _ => json.skip()?,
            }
            Ok(())
        })?;
        if is_user {
            self.prefix.close();
        }
        match kind.as_deref() {
            _ if role == Role::Message => {}
            Some("image_url" | "input_image") => self.vision = true,
            Some("text" | "input_text" | "output_text") => {
                let written = text.and_then(quoted);
                written.into_iter().for_each(|written| self.add(written));
            }
            _ => {}
        }
        Ok(())
    }

    fn content(&mut self, json: &mut Reader<'_>) -> Read<()> {
        match json.peek()? {
            b'"' => self.text(json),
            _ => json.items(|part| match part.peek()? {
                b'"' => self.text(part),
                _ => self.object(part, Role::Part),
            }),
        }
    }

    /// Reads a string.
    fn text(&mut self, json: &mut Reader<'_>) -> Read<()> {
        self.add(json.string()?);
        Ok(())
    }

    /// Adds a text that is `written` like this between its quotes.
    fn add(&mut self, written: &str) {
        self.length += text_length(written);
        self.prefix.add(written);
    }

    /// Reads a value, which counts if it is a number. A number is a token.
    fn token(&mut self, json: &mut Reader<'_>) -> Read<()> {
        let value = json.value()?;
        if value.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
            self.length += TOKEN;
            self.prefix.add(value);
        }
        Ok(())
    }
}
