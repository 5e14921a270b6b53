//! The prompt in a body, with its length, its beginning and its use of images. It may be in five fields and has a dozen
//! shapes.

use super::cursor::{Cursor, Kind, Text};
use super::prefix::Prefix;

/// The facts about a prompt.
#[derive(Debug, Default)]
pub(super) struct Prompt {
    pub(super) vision: bool,
    pub(super) chars: u64,
    /// The number of texts in a list of them. Each of these texts gets an answer of its own.
    pub(super) texts: u32,
    prefix: Prefix,
}

impl Prompt {
    /// Reads the `messages` of a chat.
    pub(super) fn messages(&mut self, at: &mut Cursor<'_>) {
        at.items(|at| _ = self.message(at));
    }

    /// Reads a text, or a list of texts, of tokens, of lists of tokens, of messages or of parts.
    pub(super) fn input(&mut self, at: &mut Cursor<'_>) {
        match at.kind() {
            Kind::Text => self.text(at),
            _ => at.items(|at| match at.kind() {
                Kind::Text => {
                    self.texts += 1;
                    self.text(at);
                }
                Kind::Number => self.token(at),
                Kind::Array => {
                    self.texts += 1;
                    at.items(|at| self.token(at));
                }
                Kind::Object | Kind::Word => {
                    let part = self.message(at);
                    self.part(part);
                }
            }),
        }
    }

    /// Returns the hash of the prompt's beginning.
    pub(super) fn prefix(&self) -> Option<u64> {
        self.prefix.hash()
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

    /// Reads a message. The caller decides on the fields that the message would have as a part.
    fn message<'a>(&mut self, at: &mut Cursor<'a>) -> Part<'a> {
        let (mut part, mut user) = (Part::default(), false);
        at.fields(|at, key| {
            if key.is("content") {
                self.content(at);
            } else if key.is("role") {
                user = at.text().is_some_and(|role| role.is("user"));
            } else {
                part.field(at, key);
            }
        });
        if user {
            self.prefix.close();
        }
        part
    }

    fn content(&mut self, at: &mut Cursor<'_>) {
        match at.kind() {
            Kind::Text => self.text(at),
            _ => at.items(|at| match at.kind() {
                Kind::Text => self.text(at),
                _ => {
                    let mut part = Part::default();
                    at.fields(|at, key| part.field(at, key));
                    self.part(part);
                }
            }),
        }
    }

    fn part(&mut self, part: Part<'_>) {
        let Some(kind) = part.kind else { return };
        let is = |kinds: &[&str]| kinds.iter().any(|word| kind.is(word));
        if is(&["image_url", "input_image"]) {
            self.vision = true;
        } else if is(&["text", "input_text", "output_text"]) {
            self.add(part.text);
        }
    }

    fn text(&mut self, at: &mut Cursor<'_>) {
        let text = at.text();
        self.add(text);
    }

    fn add(&mut self, text: Option<Text<'_>>) {
        if let Some(text) = text {
            self.chars += text.chars();
            self.prefix.add(text.written());
        }
    }

    /// Counts a token that is given as a number as four characters.
    fn token(&mut self, at: &mut Cursor<'_>) {
        let number = at.kind() == Kind::Number;
        let written = at.skip();
        if number {
            self.chars += 4;
            self.prefix.add(written);
        }
    }
}

/// A part of a message's content.
#[derive(Default)]
struct Part<'a> {
    kind: Option<Text<'a>>,
    text: Option<Text<'a>>,
}

impl<'a> Part<'a> {
    fn field(&mut self, at: &mut Cursor<'a>, key: Text<'a>) {
        if key.is("type") {
            self.kind = at.text();
        } else if key.is("text") {
            self.text = at.text();
        } else {
            at.skip();
        }
    }
}
