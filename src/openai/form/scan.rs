//! A scanner of a multipart form (RFC 7578), which looks for the part `model` while the form arrives.
//!
//! Each byte is looked at about once, however small the pieces are: the scanner remembers the position up to which it has
//! read the form.

use std::ops::Range;

use memchr::memmem;

use super::disposition::is_model;

/// A scanner of the beginning of a form.
#[derive(Debug)]
pub(super) struct FormScan {
    /// The line break and the boundary between two parts. The form begins with it, perhaps without the line break.
    delimiter: Vec<u8>,
    /// The position up to which the form is read.
    at: usize,
    /// The position at which the content of the current part begins.
    content: usize,
    /// The position up to which the end of the headers at `at` was searched.
    searched: usize,
    /// `true` once the part of the model was found, even an empty one. Another part of its name is found by its headers.
    has_model: bool,
    state: State,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// The first boundary is awaited.
    Start,
    /// The content of a part is skipped.
    Skip,
    /// A boundary was read. Two dashes after it end the form.
    Boundary,
    Headers,
    /// The content of the part `model`, which begins here, is awaited.
    Model {
        start: usize,
    },
    /// The last boundary was read. Only a line break may follow.
    End,
}

/// The result of a scan.
#[derive(Debug, PartialEq)]
pub(super) enum Found {
    /// The range of the model's name.
    Model(Range<usize>),
    /// The headers of a second part that names a model.
    SecondModel,
    /// The last boundary of the form. A further scan checks that nothing follows it.
    End,
}

/// The longest headers of a part, and the longest name of a model, in bytes.
const LONGEST_HEADERS: usize = 16 << 10;
const LONGEST_NAME: usize = 1 << 10;

const END_OF_HEADERS: &[u8] = b"\r\n\r\n";

/// The error of a boundary that only some servers take for one.
const NOT_ON_ITS_LINE: &str = "a boundary of the form is not on a line of its own";

/// The error of a form that goes on where some servers stop reading.
const BEHIND_THE_END: &str = "there is more behind the last boundary of the form";

/// The next step of a scan: on with the next state, the result, or a wait for more bytes.
enum Step {
    Next(State),
    Found(Found),
    Wait,
}

impl FormScan {
    pub(super) fn new(boundary: &[u8]) -> Self {
        Self {
            delimiter: [b"\r\n--", boundary].concat(),
            at: 0,
            content: 0,
            searched: 0,
            has_model: false,
            state: State::Start,
        }
    }

    /// Scans a form of which the bytes in `form` have arrived, which are those of the last call and more. Returns `None`
    /// if more of it is needed.
    pub(super) fn advance(&mut self, form: &[u8]) -> Result<Option<Found>, &'static str> {
        loop {
            let step = match self.state {
                State::Start => self.start(form)?,
                State::Skip => self.skip(form)?,
                State::Boundary => self.boundary(form)?,
                State::Headers => self.headers(form)?,
                State::Model { start } => self.model(form, start)?,
                State::End => self.end(form)?,
            };
            match step {
                Step::Next(state) => self.state = state,
                Step::Found(found) => return Ok(Some(found)),
                Step::Wait => return Ok(None),
            }
        }
    }

    /// Forgets the bytes of the form that the scan needs no more, once the model was found, and returns their number. The next
    /// call must have the rest, and more.
    pub(super) fn forget(&mut self) -> usize {
        let read = self.at.saturating_sub(2); // the headers of a part may end with the line break before them
        self.at -= read;
        self.content = self.content.saturating_sub(read);
        self.searched = self.searched.saturating_sub(read);
        read
    }

    /// Reads the first boundary. A text before it is refused, because a server that ignores the content type may take it
    /// for the request.
    fn start(&mut self, form: &[u8]) -> Result<Step, &'static str> {
        for begin in [&self.delimiter[2..], &self.delimiter] {
            if form.starts_with(begin) {
                self.at = begin.len();
                return Ok(Step::Next(State::Boundary));
            }
            if begin.starts_with(form) {
                return Ok(Step::Wait);
            }
        }
        Err("the form does not begin with its boundary")
    }

    fn skip(&mut self, form: &[u8]) -> Result<Step, &'static str> {
        Ok(match self.find_delimiter(form)? {
            Some(_) => Step::Next(State::Boundary),
            None => Step::Wait,
        })
    }

    fn boundary(&mut self, form: &[u8]) -> Result<Step, &'static str> {
        Ok(match &form[self.at..] {
            [b'-', b'-', ..] => {
                self.at += 2;
                self.state = State::End;
                Step::Found(Found::End)
            }
            [b'\r', b'\n', ..] => {
                self.at += 2;
                // The line break before the headers ends them if there are none.
                self.searched = self.at - 2;
                Step::Next(State::Headers)
            }
            [] | [b'\r' | b'-'] => Step::Wait,
            _ => return Err(NOT_ON_ITS_LINE),
        })
    }

    fn end(&mut self, form: &[u8]) -> Result<Step, &'static str> {
        if !form[self.at..].trim_ascii().is_empty() {
            return Err(BEHIND_THE_END);
        }
        self.at = form.len();
        Ok(Step::Wait)
    }

    fn headers(&mut self, form: &[u8]) -> Result<Step, &'static str> {
        let Some(found) = memmem::find(&form[self.searched..], END_OF_HEADERS) else {
            // An end may have begun.
            let rest = form.len().saturating_sub(END_OF_HEADERS.len() - 1);
            self.searched = self.searched.max(rest);
            return match form.len() - self.at > LONGEST_HEADERS {
                true => Err("the headers of a part of the form are too long"),
                false => Ok(Step::Wait),
            };
        };
        let end = self.searched + found;
        let headers = &form[self.at - 2..end];
        if memmem::find(headers, &self.delimiter[2..]).is_some() {
            return Err(NOT_ON_ITS_LINE);
        }
        self.at = end + END_OF_HEADERS.len();
        self.content = self.at;
        Ok(match is_model(headers)? {
            true if self.has_model => Step::Found(Found::SecondModel),
            true => Step::Next(State::Model { start: self.at }),
            false => Step::Next(State::Skip),
        })
    }

    fn model(&mut self, form: &[u8], start: usize) -> Result<Step, &'static str> {
        let end = self.find_delimiter(form)?;
        if end.unwrap_or(form.len()) - start > LONGEST_NAME + self.delimiter.len() {
            return Err("the `model` of the form is too long");
        }
        let Some(end) = end else {
            return Ok(Step::Wait);
        };
        let text = std::str::from_utf8(&form[start..end]);
        let text = text.map_err(|_| "the `model` of the form is not UTF-8")?;
        let name = text.trim_ascii();
        let before = text.len() - text.trim_ascii_start().len();
        (self.has_model, self.state) = (true, State::Boundary);
        if name.is_empty() {
            return Ok(Step::Next(State::Boundary)); // names no model, and no other part may
        }
        let start = start + before;
        Ok(Step::Found(Found::Model(start..start + name.len())))
    }

    /// Finds the next delimiter, and moves behind it. Returns its position. If there is none, the scan moves on to where one
    /// may have begun.
    ///
    /// A boundary within a line is refused, because some servers take it for one.
    fn find_delimiter(&mut self, form: &[u8]) -> Result<Option<usize>, &'static str> {
        let boundary = &self.delimiter[2..];
        let Some(found) = memmem::find(&form[self.at..], boundary) else {
            self.at = self.at.max(form.len().saturating_sub(boundary.len() - 1));
            return Ok(None);
        };
        let position = self.at + found;
        self.at = position + boundary.len();
        match form[..position].ends_with(b"\r\n") && position >= self.content + 2 {
            true => Ok(Some(position - 2)),
            false => Err(NOT_ON_ITS_LINE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(disposition: &str, content: &str) -> String {
        format!("--b\r\nContent-Disposition: form-data; {disposition}\r\n\r\n{content}\r\n")
    }

    /// Scans a form that arrives in pieces of `length` bytes.
    fn scan(form: &[u8], length: usize) -> Result<Option<Found>, &'static str> {
        let mut scan = FormScan::new(b"b");
        let ends = (0..form.len()).step_by(length).chain([form.len()]);
        for end in ends {
            if let Some(found) = scan.advance(&form[..end])? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn model(form: &str) -> Result<Option<String>, &'static str> {
        let found = |length| {
            let found = scan(form.as_bytes(), length)?;
            Ok(found.map(|found| match found {
                Found::Model(at) => form[at].to_owned(),
                Found::SecondModel => "(second)".to_owned(),
                Found::End => "(end)".to_owned(),
            }))
        };
        let whole = found(form.len().max(1));
        for length in [1, 2, 3, 10] {
            assert_eq!(found(length), whole, "{form:?} in pieces of {length}");
        }
        whole
    }

    #[test]
    fn the_model_is_found_wherever_its_part_stands() {
        let file = part(
            "name=\"file\"; filename=\"a.wav\"",
            "RIFF\r\n-- b\r\n\r\n--",
        );
        let named = part("name=\"model\"", "whisper-1");
        for form in [
            format!("{named}{file}--b--\r\n"),
            format!("{file}{named}--b--\r\n"),
            format!("\r\n{named}--b"),
            named.replace("\"model\"", "model") + "--b",
            named.replace(
                "Content-Disposition",
                "content-TYPE: x\r\ncontent-disposition",
            ) + "--b",
            part("name=\"model\"; size=1", " whisper-1 ") + "--b",
            part("name=\"model\"; filename=\"x\"", "whisper-1") + "--b",
        ] {
            assert_eq!(model(&form), Ok(Some("whisper-1".to_owned())), "{form:?}");
        }
    }

    #[test]
    fn other_parts_name_no_model() {
        for parts in [
            part("name=\"file\"; filename=\"model\"", "x"),
            part("name=\"model\"", " "),
            "--b\r\n\r\nname=model\r\n".to_owned(),
            String::new(),
        ] {
            let form = format!("{parts}--b--\r\n");
            assert_eq!(model(&form), Ok(Some("(end)".to_owned())), "{form:?}");
        }
    }

    #[test]
    fn a_form_that_servers_may_divide_differently_is_refused() {
        let named = part("name=\"model\"", "whisper-1");
        let file = part("name=\"file\"; filename=\"a\"", "RIFF");
        for form in [
            format!("{{\"model\":\"other\"}}\r\n{named}--b"),
            format!(" {named}--b"),
            format!("\n{named}--b"),
            file.replace("RIFF", "\n--b\nRIFF") + &named,
            file.replace("RIFF", "\r--b\rRIFF") + &named,
            file.replace("RIFF", "--b\r\nRIFF") + &named,
        ] {
            assert!(model(&form).is_err(), "{form:?}");
        }
        for behind in [
            "\n", "\r", "\x0b\r\n", "\x0c\r\n", "\0\r\n", " \n", "\t\r", " b\r\n", " --\r\n",
            " \r\n", "b\r\n", "-\r\n",
        ] {
            let begin = format!(
                "--b{behind}Content-Disposition: form-data; name=\"model\"\r\n\r\nother\r\n"
            );
            for form in [
                format!("{begin}{named}--b"),
                format!("{file}{begin}{named}--b"),
            ] {
                assert_eq!(model(&form), Err(NOT_ON_ITS_LINE), "{form:?}");
            }
        }
        for hidden in [
            file.replace("RIFF", "RI--bFF"),
            file.replace("\"a\"", "\"--b\""),
            named.replace("whisper", "--b"),
        ] {
            let form = format!("{hidden}{named}--b");
            assert_eq!(model(&form), Err(NOT_ON_ITS_LINE), "{form:?}");
        }
    }

    #[test]
    fn only_a_line_break_may_follow_the_end() {
        for (behind, is_end) in [
            ("", true),
            ("\r\n", true),
            ("\r\n\r\n", true),
            ("x", false),
            ("\r\n--b\r\n", false),
        ] {
            let form = format!("--b--{behind}").into_bytes();
            let mut scan = FormScan::new(b"b");
            assert_eq!(scan.advance(&form), Ok(Some(Found::End)), "{behind:?}");
            let next = scan.advance(&form);
            assert_eq!(next.is_ok(), is_end, "{behind:?}");
        }
    }

    #[test]
    fn a_second_model_is_found_by_its_headers() {
        let file = part("name=\"file\"; filename=\"a\"", "RIFF");
        let named = part("name=\"model\"", "a");
        let form = format!("{named}{file}{named}").into_bytes();
        for length in [1, 2, 3, 10, form.len()] {
            let (mut scan, mut read, mut found) = (FormScan::new(b"b"), Vec::new(), Vec::new());
            'form: for piece in form.chunks(length) {
                read.extend_from_slice(piece);
                while let Some(next) = scan.advance(&read).unwrap() {
                    found.push(next);
                    if found.len() > 1 {
                        break 'form;
                    }
                }
                if !found.is_empty() {
                    read.drain(..scan.forget());
                    assert!(read.len() < 100, "{length}");
                }
            }
            assert_eq!(found[1..2], [Found::SecondModel], "{length}");
        }
    }

    #[test]
    fn an_unfinished_form_needs_more() {
        let named = part("name=\"model\"", "whisper-1");
        for form in ["", "-", "--b", "--b\r", "--b\r\nContent", &named] {
            assert_eq!(model(form), Ok(None), "{form:?}");
        }
    }

    #[test]
    fn endless_headers_and_names_are_refused() {
        let headers = format!("--b\r\nx: {}", "x".repeat(LONGEST_HEADERS));
        assert!(scan(headers.as_bytes(), 1_000).is_err());
        let name = part("name=\"model\"", &"x".repeat(LONGEST_NAME + 100));
        assert!(scan(name.as_bytes(), 1_000).is_err());
        assert!(
            scan(
                &[part("name=\"model\"", "x").as_bytes(), b"--b"].concat(),
                9
            )
            .is_ok()
        );
    }
}
